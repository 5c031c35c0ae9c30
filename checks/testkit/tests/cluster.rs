//! Guarantees of a cluster to its owner.

use latchwork_testkit::RedisCluster;

#[test]
fn slots_and_their_keys_move() {
    let cluster = RedisCluster::start_with(&[]);
    let slot: u16 = cluster.ask(0, &["CLUSTER", "KEYSLOT", "a"]);
    let from = cluster.owner(0, slot).unwrap();
    let to = (from + 1) % 3;
    for key in ["a", "{a}1", "{a}2"] {
        let () = cluster.ask(from, &["SET", key, "value"]);
    }
    cluster.begin_to_move(slot, from, to);
    cluster.move_key("{a}1", from, to);
    assert_eq!(cluster.owner(from, slot), Some(from));
    assert_eq!(cluster.ask::<usize>(from, &["EXISTS", "a"]), 1);
    let refusal = cluster.try_ask::<usize>(from, &["EXISTS", "{a}1"]).unwrap_err();
    assert_eq!(refusal.code(), Some("ASK"));
    cluster.finish_to_move(slot, from, to);
    for node in 0..3 {
        assert_eq!(
            cluster.owner(node, slot),
            Some(to),
            "expected the slot's new owner in the view of node {node}"
        );
    }
    assert_eq!(cluster.ask::<usize>(to, &["EXISTS", "a", "{a}1", "{a}2"]), 3);
}

#[test]
fn replica_takes_over() {
    let mut cluster = RedisCluster::start_replicated_with(&[]);
    assert_eq!(cluster.nodes().len(), 4);
    assert_eq!(cluster.owner(1, 0), Some(0));
    cluster.fail_over();
    for node in 1..4 {
        assert_eq!(cluster.owner(node, 0), Some(3), "expected the slot's owner in the view of node {node}");
    }
    let () = cluster.ask(3, &["SET", "{3560}a", "value"]);
}
