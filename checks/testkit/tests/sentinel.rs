//! A set of servers with Sentinels replaces its master, and ends with its owner.

mod client;

use std::net::TcpStream;
use std::time::Duration;

use latchwork_testkit::SentinelSet;

use crate::client::Client;

fn role(port: u16) -> String {
    let mut client = Client::connect(port);
    // *<parts>, $<length>, and then the role.
    client.ask("ROLE");
    client.receive();
    client.receive()
}

#[test]
fn a_master_that_is_killed_is_replaced() {
    let mut set = SentinelSet::start();
    assert_eq!(set.master(), 0);
    assert_eq!([role(set.servers[0].port()), role(set.servers[1].port())], ["master", "slave"]);
    set.servers[0].kill_9();
    set.wait_for_master(1);
    assert_eq!(role(set.servers[1].port()), "master");
}

/// A Sentinel whose clock jumps, such as after two seconds without CPU, distrusts its measurements for half a
/// minute by default, and replaces no master meanwhile.
#[test]
fn sentinels_paused_for_a_while_still_replace_a_master() {
    let mut set = SentinelSet::start();
    for sentinel in &set.sentinels {
        sentinel.pause();
    }
    // The fault itself: more than the jump after which a Sentinel distrusts its clock.
    std::thread::sleep(Duration::from_millis(2500));
    for sentinel in &set.sentinels {
        sentinel.resume();
    }
    set.servers[0].kill_9();
    set.wait_for_master(1);
}

#[test]
fn a_failover_can_be_asked_for_and_all_end_with_the_set() {
    let set = SentinelSet::start();
    set.fail_over();
    set.wait_for_master(1);
    assert_eq!(set.master(), 1);
    let ports: Vec<u16> = set.servers.iter().chain(&set.sentinels).map(|server| server.port()).collect();
    drop(set);
    assert!(
        ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_err()),
        "expected the end of all Sentinels, and one accepts connections"
    );
}
