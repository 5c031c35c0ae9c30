mod crowds;
mod found;
mod leases;
mod readers;
mod strangers;
mod turns;
