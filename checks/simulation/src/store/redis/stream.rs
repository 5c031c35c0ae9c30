//! [`Stream`]: a client's end of a link.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::world::Process;

use super::link::Links;

#[derive(Debug)]
pub(super) struct Stream {
    links: Links,
    link: u64,
}

impl Stream {
    /// Opens a new link for a process. Fails if the server refuses.
    pub(super) fn connect(
        links: &Links,
        process: &Process,
    ) -> impl Future<Output = io::Result<Self>> + Send + use<> {
        let (links, link) = (links.clone(), links.connect(process));
        async move {
            let link = link.await?;
            Ok(Self { links, link })
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.links.poll_read(self.link, context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.links.write(self.link, bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.links.close(self.link);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.links.close(self.link);
    }
}
