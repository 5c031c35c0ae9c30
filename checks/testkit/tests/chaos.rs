//! Guarantees of the chaos proxy to a test.

mod client;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use latchwork_testkit::{Afterwards, ChaosProxy, Cut, RedisServer, Way};

use crate::client::Client;

/// Far shorter than a fault lasts, and enough for a round trip over loopback.
const MOMENT: Duration = Duration::from_millis(100);

fn before(server: &RedisServer) -> (ChaosProxy, Client) {
    let proxy = ChaosProxy::start(server.port());
    let client = Client::connect(proxy.port());
    (proxy, client)
}

#[test]
fn forwards_and_tells_what_came_over_which_link() {
    let server = RedisServer::start();
    let (proxy, mut one) = before(&server);
    assert_eq!(one.ask("SET key 1"), "+OK");
    let mut other = Client::connect(proxy.port());
    assert_eq!(other.ask("incr key"), ":2");
    let links = proxy.links();
    assert_eq!((links.len(), links[1].number()), (2, 1));
    assert_eq!((proxy.count("key"), links[0].count("SET"), links[1].count("SET")), (2, 1, 0));
    assert_eq!(proxy.link_of("INCR").unwrap().number(), 1);
    assert_eq!(links[1].bytes_to_client(), ":2\r\n".len());
    proxy.wait_for("INCR", 1);
    drop(other);
    links[1].wait_for_end();
    assert!(proxy.link_of("SET").is_some());
    proxy.forget();
    assert!(proxy.count("key") == 0 && proxy.link_of("SET").is_none());
    assert_eq!((one.ask("GET key"), proxy.count("GET")), ("$1".to_owned(), 1));
    assert!(links[0].is_open() && proxy.link_of("INCR").is_none());
}

#[test]
fn cut_ends_links_by_fin_or_by_rst_and_new_ones_can_be_made() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    for (number, (how, end)) in
        [(Cut::Close, Ok(0)), (Cut::Reset, Err(ErrorKind::ConnectionReset))].into_iter().enumerate()
    {
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        client.write_all(b"PING\r\n").unwrap();
        proxy.wait_for_links(number + 1);
        let mut reply = [0; 7];
        client.read_exact(&mut reply).unwrap();
        proxy.cut(how);
        assert_eq!(client.read(&mut reply).map_err(|error| error.kind()), end, "{how:?}");
    }
    assert_eq!(Client::connect(proxy.port()).ask("PING"), "+PONG");
}

#[test]
fn silence_holds_back_one_way_until_it_is_healed() {
    let server = RedisServer::start();
    let mut direct = Client::connect(server.port());
    let (proxy, mut client) = before(&server);
    assert_eq!(client.ask("PING"), "+PONG");

    proxy.silence(Way::ToServer);
    client.send("INCR key");
    proxy.wait_until_held_back("INCR");
    assert!(client.is_silent_for(MOMENT));
    assert_eq!(direct.ask("EXISTS key"), ":0");
    proxy.heal();
    assert_eq!(client.receive(), ":1");

    proxy.links()[0].silence(Way::ToClient);
    client.send("INCR key");
    proxy.wait_for("INCR", 2);
    assert!(client.is_silent_for(MOMENT));
    assert_eq!(Client::connect(proxy.port()).ask("PING"), "+PONG", "expected a reply over a new link");
    // The silence holds back even the end of the server's connection.
    direct.ask("CLIENT KILL TYPE normal SKIPME yes");
    assert!(client.is_silent_for(MOMENT));
    proxy.heal();
    assert_eq!(client.receive(), ":2");
}

#[test]
fn new_links_are_silent_too() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    proxy.silence(Way::ToClient);
    let mut client = Client::connect(proxy.port());
    client.send("PING");
    assert!(client.is_silent_for(MOMENT));
    proxy.heal();
    assert_eq!(client.receive(), "+PONG");
}

#[test]
fn lost_reply_is_that_of_a_command_that_ran() {
    let server = RedisServer::start();
    let mut direct = Client::connect(server.port());
    let proxy = ChaosProxy::start(server.port());
    proxy.lose_reply("incr", Afterwards::Reset);
    proxy.lose_reply("incr", Afterwards::Silence);

    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client.read_exact(&mut [0; 7]).unwrap();
    client.write_all(b"*2\r\n$4\r\nINCR\r\n$3\r\nkey\r\n").unwrap();
    let end = client.read(&mut [0; 9]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert_eq!(direct.ask("GET key"), "$1");
    assert_eq!(direct.receive(), "1");

    let mut client = Client::connect(proxy.port());
    client.send("INCR key");
    proxy.wait_until_replies_are_lost();
    assert!(client.is_silent_for(MOMENT));
    assert_eq!(direct.ask("INCR key"), ":3");
    assert_eq!(
        Client::connect(proxy.port()).ask("INCR key"),
        ":4",
        "expected the loss of the requested replies only"
    );
}

#[test]
fn delay_is_waited_for_and_chopping_changes_no_byte() {
    let server = RedisServer::start();
    let (proxy, mut client) = before(&server);
    for way in [Way::ToServer, Way::ToClient] {
        proxy.delay(way, MOMENT);
    }
    let before = Instant::now();
    assert_eq!(client.ask("PING"), "+PONG");
    assert!(before.elapsed() >= 2 * MOMENT);
    proxy.heal();

    proxy.chop();
    let text = "chopped".repeat(100);
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let mut pieces = 0;
    // A reader that is scheduled late finds all pieces at once.
    for _ in 0..20 {
        write!(stream, "ECHO {text}\r\n").unwrap();
        let mut got = Vec::new();
        while got.len() < text.len() + "$700\r\n\r\n".len() {
            let mut buffer = [0; 1024];
            let read = stream.read(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..read]);
            pieces += 1;
        }
        assert_eq!(String::from_utf8(got).unwrap(), format!("$700\r\n{text}\r\n"));
    }
    assert!(pieces > 20, "expected the reply byte by byte");
}

#[test]
fn server_outage_ends_a_link_at_once_and_drop_ends_all_links() {
    let mut server = RedisServer::start();
    let (proxy, mut client) = before(&server);
    assert_eq!(client.ask("PING"), "+PONG");
    server.kill_9();
    assert_eq!(client.receive(), "");
    assert_eq!(Client::connect(proxy.port()).receive(), "");
    server.restart();
    let mut client = Client::connect(proxy.port());
    assert_eq!(client.ask("PING"), "+PONG");
    proxy.silence(Way::ToClient);
    client.send("PING");
    let port = proxy.port();
    drop(proxy);
    assert_eq!(client.receive(), "");
    assert_eq!(TcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
