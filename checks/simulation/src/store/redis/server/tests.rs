//! Behaviour beyond the reach of the comparison with a real server.
