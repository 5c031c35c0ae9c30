//! What the comparison with a real server does not reach.
