//! [`Reply`], and the other effects of a command.

/// A reply in RESP3.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Status(String),
    Int(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Error(String),
    Bool(bool),
    Double(f64),
}

/// An unrequested item for a connection: a message, or a confirmation of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Push {
    pub(crate) connection: u64,
    pub(crate) reply: Vec<Reply>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Effects {
    /// `None` if the command is answered by pushes.
    pub(crate) reply: Option<Reply>,
    /// In order, all before the reply.
    pub(crate) pushes: Vec<Push>,
    pub(crate) killed: Vec<u64>,
}

impl Reply {
    pub(super) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(super) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    pub(super) fn count(number: usize) -> Self {
        Self::Int(i64::try_from(number).expect("the number fits"))
    }

    pub(super) fn bulk_or_nil(bytes: Option<impl AsRef<[u8]>>) -> Self {
        bytes.map_or(Self::Nil, Self::bulk)
    }
}
