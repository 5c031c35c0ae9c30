//! Guarantees of a server's clock to a test.
#![cfg(target_os = "linux")]

mod client;

use std::time::{SystemTime, UNIX_EPOCH};

use latchwork_testkit::ServerClock;

use crate::client::Client;

const HOUR: i64 = 3600;

#[test]
fn clock_is_the_machines_until_set_and_expiry_follows_it() {
    let (server, clock) = ServerClock::start_server();
    let mut client = Client::connect(server.port());
    // The offset in seconds, give or take a round trip on a busy machine.
    let off = |client: &mut Client| {
        let time = client.ask("EVAL \"return tonumber(redis.call('time')[1])\" 0");
        let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        (time[1..].parse::<i64>().unwrap() - ours + 30).div_euclid(60) * 60
    };
    assert_eq!(off(&mut client), 0);
    assert_eq!(client.ask("SET key 1 EX 60"), "+OK");
    clock.set(-HOUR);
    assert_eq!(off(&mut client), -HOUR);
    let left: i64 = client.ask("TTL key")[1..].parse().unwrap();
    assert!(left > HOUR, "{left}");
    clock.set(HOUR);
    assert_eq!(off(&mut client), HOUR);
    assert_eq!(client.ask("TTL key"), ":-2");
}
