//! Guarantees of a server to its living owner.

mod client;

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use latchwork_testkit::RedisServer;

use crate::client::Client;

#[test]
fn answers_as_soon_as_it_is_started() {
    let server = RedisServer::start();
    assert_eq!(Client::connect(server.port()).ask("PING"), "+PONG");
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
}

#[test]
fn pid_is_the_servers_own() {
    let server = RedisServer::start();
    assert_eq!(Client::connect(server.port()).info("process_id"), server.pid().to_string());
}

#[test]
fn passes_arguments_on_to_every_start() {
    let mut server = RedisServer::start_with(&["--databases", "3"]);
    for _ in 0..2 {
        let mut client = Client::connect(server.port());
        assert_eq!(client.ask("SELECT 2"), "+OK");
        assert!(client.ask("SELECT 3").starts_with("-ERR"));
        server.restart();
    }
}

#[test]
fn killed_server_refuses_until_restarted_empty_on_the_same_port() {
    let mut server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    assert_eq!(Client::connect(port).ask("SET key value"), "+OK");

    server.kill_9();
    server.kill_9();
    assert_eq!(TcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);

    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(Client::connect(port).ask("EXISTS key"), ":0");
}

#[test]
#[should_panic = "the Redis server is down: it was killed and not restarted"]
fn a_killed_server_has_no_pid() {
    let mut server = RedisServer::start();
    server.kill_9();
    let _ = server.pid();
}

#[test]
fn a_paused_server_answers_only_after_it_is_resumed() {
    let server = RedisServer::start();
    let mut client = Client::connect(server.port());
    // Twice: the second pause must not return because of the first stop.
    for _ in 0..2 {
        server.pause();
        client.send("PING");
        assert!(client.is_silent_for(Duration::from_millis(100)));
        server.resume();
        assert_eq!(client.receive(), "+PONG");
    }
}

#[test]
fn drop_ends_a_paused_server_too_and_removes_its_directory() {
    let server = RedisServer::start();
    let port = server.port();
    let dir = Client::connect(port).working_directory();
    assert!(Path::new(&dir).is_dir());

    server.pause();
    drop(server);
    assert_eq!(TcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(!Path::new(&dir).exists());
}
