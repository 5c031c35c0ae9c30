//! Limits the concurrency of a service: a tower `Layer` over `PollSemaphore`.
//!
//! ```sh
//! cargo run -p recipes --bin tower_limit
//! # in a package of your own:
//! cargo add latchwork
//! cargo add tokio --features full
//! cargo add tower --features util
//! ```
//!
//! Unlike `tower::limit`, the limit can be shared with threads and with other code, can be changed while
//! requests are served, and counts the waiting requests.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use latchwork::{AcquireError, AsyncSemaphore, OwnedSemaphorePermit, PollSemaphore};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

/// Limits the requests of all wrapped services to the permits of `permits`.
#[derive(Clone)]
struct LimitLayer {
    permits: Arc<AsyncSemaphore>,
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Limit<S> {
        Limit { inner, waiting: PollSemaphore::new(Arc::clone(&self.permits)), permit: None }
    }
}

struct Limit<S> {
    inner: S,
    /// Keeps the position in the queue from one `poll_ready` to the next.
    waiting: PollSemaphore,
    /// The next request's permit. Dropping the service before `call` releases it.
    permit: Option<OwnedSemaphorePermit>,
}

impl<S: Clone> Clone for Limit<S> {
    /// Each clone waits for a permit of its own: a permit belongs to one request.
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), waiting: self.waiting.clone(), permit: None }
    }
}

impl<R, S> Service<R> for Limit<S>
where
    S: Service<R, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    // A box for each request; pin-project-lite would avoid it.
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.permit.is_none() {
            match ready!(self.waiting.poll_acquire(context)) {
                Some(permit) => self.permit = Some(permit),
                // `close()` refuses all waiting and all new requests: for a shutdown.
                None => return Poll::Ready(Err("the service takes no more requests".into())),
            }
        }
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let permit = self.permit.take().expect("`poll_ready` comes before each `call`");
        let response = self.inner.call(request);
        Box::pin(async move {
            // Held until the response is ready, or its future is dropped.
            let _permit = permit;
            response.await.map_err(Into::into)
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // A service that counts the requests inside of it, and answers once the gate opens.
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(AsyncSemaphore::new(0));
    let service = service_fn({
        let (inside, most, gate) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&gate));
        move |request: u32| {
            let (inside, most, gate) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&gate));
            async move {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await?.forget();
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, AcquireError>(request * 2)
            }
        }
    });

    let permits = Arc::new(AsyncSemaphore::new(3));
    let limited = LimitLayer { permits: Arc::clone(&permits) }.layer(service);
    let requests: Vec<_> = (0..10).map(|n| tokio::spawn(limited.clone().oneshot(n))).collect();
    while inside.load(Ordering::SeqCst) < 3 || permits.waiters() < 7 {
        tokio::task::yield_now().await;
    }
    println!("3 requests are served, {} wait", permits.waiters());

    // The limit falls at once: the next request is served when none is inside.
    permits.set_capacity(1);
    gate.add_permits(2);
    while permits.held() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(permits.waiters(), 7);
    most.store(0, Ordering::SeqCst);
    gate.add_permits(8);
    for (n, request) in (0..).zip(requests) {
        assert_eq!(request.await??, n * 2);
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    println!("10 requests were served, the last 7 of them one at a time");

    permits.close();
    assert!(limited.oneshot(1).await.is_err());
    Ok(())
}
