mod kinds;
mod queue;
