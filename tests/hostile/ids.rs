use latchwork::LeaseId;

use super::driver::attack;

const WORDS: [&str; 10] = [
    "8743c9c0-0795-4907-87fd-6c719a6b4586",
    "8743C9C00795490787FD6C719A6B4586",
    "{8743c9c0-0795-4907-87fd-6c719a6b4586}",
    "urn:uuid:",
    ":",
    ":1",
    ":worker-3",
    ":write",
    ":18446744073709551615",
    "-",
];

#[test]
fn hostile_texts_are_errors_or_ids_that_round_trip() {
    attack("ids", &WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(id) = text.parse::<LeaseId>() else { return };
        let written = id.to_string();
        assert_eq!(written.parse::<LeaseId>().as_ref(), Ok(&id));
        assert_eq!((id.client_id().len(), id.client_id().parse::<LeaseId>().is_err()), (36, true));
        assert!(written.starts_with(&format!("{}:{}", id.client_id(), id.number())));
        // An id written by a client of this crate is read back unchanged.
        let is_theirs =
            |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        let mut parts = text.splitn(3, ':');
        let (client, number) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if client.len() == 36 && is_theirs(client) && (number == "0" || !number.starts_with(['0', '+'])) {
            assert_eq!(written, text);
        }
        assert_eq!(id.label(), parts.next());
    });
}
