//! Why a server did not start.

use std::io;
use std::process::ExitStatus;

use crate::NotFound;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No server to run was found.
    #[error(transparent)]
    NotFound(#[from] NotFound),

    /// The operating system refused a step of the start.
    #[error("cannot {doing}: {source}")]
    #[non_exhaustive]
    Io {
        /// The refused step, as in "cannot ...".
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },

    /// Another process listens on the port.
    #[error("port {port} of 127.0.0.1 is taken by another process")]
    #[non_exhaustive]
    PortTaken {
        /// The port.
        port: u16,
    },

    /// The server exited before it answered.
    #[error("the Redis server ended ({status}) before it answered; its log ends with:\n{log}")]
    #[non_exhaustive]
    Ended {
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },

    /// The server runs, but did not answer in time.
    #[error("the Redis server did not answer within {seconds} s; its log ends with:\n{log}")]
    #[non_exhaustive]
    Silent {
        /// The time that the start waited.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
}

impl StartError {
    /// For `map_err`: names the step that the operating system refused.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
        move |source| StartError::Io { doing, source }
    }
}
