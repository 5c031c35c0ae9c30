//! The deliveries: what a message of the server's says, and to whose inbox it goes.

use ::redis::{Msg, PushInfo};

use crate::transport::Message;

use super::super::keys::{GRANTED, READ_UNLOCK_MESSAGE, UNLOCK_MESSAGE};
use super::super::nonces::Nonces;
use super::channels::Channels;

/// Hands a message to the inboxes of its channel. Runs on the connection's task.
pub(super) fn dispatch(push: PushInfo, channels: &Channels, nonces: &Nonces) {
    // `None`: a confirmation, which comes here as well. No patterns are subscribed to.
    let Some(message) = Msg::from_push_info(push) else { return };
    let channel = message.get_channel_name();
    // Otherwise it is not of the lock's: another program uses the channel.
    if let Some(said) = read(message.get_payload_bytes(), |number| nonces.of(channel, number)) {
        channels.deliver(channel, said);
    }
}

/// `nonce`: that of the waiter with a number. A grant with another one is not the store's, or the store has
/// lost the nonce: its waiter is to ask.
fn read(payload: &[u8], nonce: impl Fn(u64) -> u64) -> Option<Message> {
    match std::str::from_utf8(payload).ok()? {
        UNLOCK_MESSAGE => Some(Message::Unlock),
        READ_UNLOCK_MESSAGE => Some(Message::ReadUnlock),
        other => {
            let (number, proof) = other.strip_prefix(GRANTED)?.split_once(':')?;
            // `parse` takes a sign, too.
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| number.parse().ok())??;
            let is_hex = proof.len() == 16 && proof.bytes().all(|byte| byte.is_ascii_hexdigit());
            let proof = is_hex.then(|| u64::from_str_radix(proof, 16).ok()).flatten();
            let is_proven = proof == Some(nonce(number));
            Some(if is_proven { Message::Granted(number) } else { Message::Unlock })
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::PushKind;

    use super::super::super::hostile::{WORDS, attack, reply};
    use super::super::channels::Source;
    use super::*;
    use crate::runtime::TokioRuntime;

    fn reading(payload: &[u8]) -> Option<Message> {
        read(payload, |number| number ^ 0xabcd)
    }

    #[test]
    fn message_that_is_not_exactly_a_locks_is_nobodys() {
        assert_eq!(reading(b"0"), Some(Message::Unlock));
        assert_eq!(reading(b"1"), Some(Message::ReadUnlock));
        assert_eq!(reading(b"granted:42:000000000000abe7"), Some(Message::Granted(42)));
        assert_eq!(
            reading(b"granted:18446744073709551615:ffffffffffff5432"),
            Some(Message::Granted(u64::MAX))
        );
        for other in
            ["", "2", "00", "granted", "granted:", "granted:1", "granted:+1:", "granted:-1:", "granted: 1:2"]
        {
            assert_eq!(reading(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(reading(b"granted:18446744073709551616:0"), None);
        assert_eq!(reading(b"granted:\xff"), None);
    }

    #[test]
    fn grant_without_its_nonce_is_a_hint() {
        for proof in
            ["", "0", "000000000000abe6", "+00000000000abe7", "0000000000000abe7", "000000000000abe7 "]
        {
            assert_eq!(reading(format!("granted:42:{proof}").as_bytes()), Some(Message::Unlock), "{proof:?}");
        }
        // That of another number.
        assert_eq!(reading(b"granted:43:000000000000abe7"), Some(Message::Unlock));
    }
    #[test]
    fn hostile_messages_are_grants_by_their_exact_text_only() {
        let words = ["granted:", "granted:42:000000000000abe7", ":", "000000000000abe7", "ABE7", "42"];
        attack("messages", &words, |payload| {
            let text = || std::str::from_utf8(payload).expect("what is read is text");
            match reading(payload) {
                Some(Message::Granted(number)) => {
                    let rest = text().strip_prefix("granted:").expect("a grant's beginning");
                    let (digits, nonce) = rest.split_once(':').expect("a nonce behind it");
                    assert_eq!(digits.trim_start_matches('0'), format!("{number}").trim_start_matches('0'));
                    assert_eq!(nonce.to_ascii_lowercase(), format!("{:016x}", number ^ 0xabcd));
                }
                Some(Message::Unlock) => assert!(text() == "0" || text().starts_with("granted:")),
                Some(Message::ReadUnlock) => assert_eq!(text(), "1"),
                None => assert!(!matches!(payload, b"0" | b"1")),
            }
        });
    }

    #[test]
    fn hostile_pushes_are_delivered_or_left_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let nonces = Nonces::new(&TokioRuntime::try_current().unwrap());
        let channels = Channels::new(Source::Unknown);
        attack("pushes", &WORDS, |input| {
            let data = match reply(input) {
                ::redis::Value::Array(data) | ::redis::Value::Push { data, .. } => data,
                other => vec![other],
            };
            for kind in [PushKind::Message, PushKind::SMessage, PushKind::Subscribe, PushKind::Disconnection]
            {
                dispatch(PushInfo { kind, data: data.clone() }, &channels, &nonces);
            }
        });
    }
}
