//! A lock for each user in an axum handler, with a limit on waiting, and HTTP statuses that tell the caller
//! what to do.
//!
//! ```sh
//! cargo run -p recipes --bin axum_lock_per_user
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! cargo add axum
//! cargo add tower --features util
//! ```
//!
//! | status | when | the caller |
//! |---|---|---|
//! | 200 | the work was done under the lock | goes on |
//! | 400 | the user's name cannot be a lock's | corrects the request |
//! | 409 | the lock was lost while the work ran | checks whether the work was done |
//! | 423 | the lock was held for as long as the handler waits | retries later |
//! | 429 | too many requests of this user already wait | sends fewer |
//! | 500 | Redis refuses, or a name is used for two kinds of lock | can do nothing: see the log |
//! | 503 | Redis does not answer in time, or this process shuts down | retries, perhaps at another process |

use std::env;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use latchwork::redis::Redis;
use latchwork::{AsyncSemaphore, Lease, LockClient, LockError};
use tower::ServiceExt;

/// Time limit of a request's wait for earlier requests of the same user.
const WAIT: Duration = Duration::from_millis(500);
/// Limit of one user's waiting requests in this process.
const MOST_WAITERS: usize = 4;

/// Cloned for each request: the clones share the connections.
#[derive(Clone)]
struct App {
    locks: LockClient,
    /// Limits the requests of all users in this process: the database takes no more.
    orders: Arc<AsyncSemaphore>,
}

/// A status, and a sentence for the caller's log.
struct Refusal(StatusCode, String);

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        let status = match &error {
            LockError::Name(_) => StatusCode::BAD_REQUEST,
            error if error.is_lost() => StatusCode::CONFLICT,
            // Nothing was done, or it is rolled back in the background.
            error if error.is_retryable() || error.is_shut_down() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

async fn order(State(app): State<App>, Path(user): Path<String>) -> Result<String, Refusal> {
    let lock = app.locks.get_lock(&format!("recipes:user:{user}"))?;
    if lock.waiting() >= MOST_WAITERS {
        return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests at a time".into()));
    }
    let guard = lock.try_lock_for(WAIT, Lease::Watched).await?;
    let guard = guard.ok_or_else(|| Refusal(StatusCode::LOCKED, "another request is served".into()))?;
    // When the caller hangs up, axum drops this future: the work ends, and the lock is released.
    let placed = guard.run(async {
        let _permit = app.orders.acquire().await.expect("nothing closes it");
        format!("ordered for {user}")
    });
    Ok(placed.await?)
}

fn router(app: App) -> Router {
    Router::new().route("/users/{user}/orders", post(order)).with_state(app)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let locks = LockClient::new(Redis::connect(&url).await?);
    let orders = Arc::new(AsyncSemaphore::new(10));
    let app = router(App { locks: locks.clone(), orders: Arc::clone(&orders) });
    // In production: axum::serve(listener, app).with_graceful_shutdown(…), and then locks.shutdown(…).
    let post = |user: &str| {
        let request = Request::post(format!("/users/{user}/orders")).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request);
        async move { response.await.unwrap().status() }
    };

    assert_eq!(post("ada").await, StatusCode::OK);
    assert_eq!(post(&"x".repeat(1_000)).await, StatusCode::BAD_REQUEST);

    // Another process has the lock of one user.
    let elsewhere = LockClient::new(Redis::connect(&url).await?);
    let held = elsewhere.get_lock("recipes:user:ada")?.lock().await?;
    let waiting: Vec<_> = (0..MOST_WAITERS).map(|_| tokio::spawn(post("ada"))).collect();
    // One request asks Redis, and the others wait behind it.
    while locks.get_lock("recipes:user:ada")?.waiting() < MOST_WAITERS {
        tokio::task::yield_now().await;
    }
    assert_eq!(post("ada").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(post("grace").await, StatusCode::OK);
    // All time limits end at once. Redis's answer to the first request holds for the others.
    for request in waiting {
        assert_eq!(request.await?, StatusCode::LOCKED);
    }
    held.unlock().await?;
    assert_eq!(post("ada").await, StatusCode::OK);

    // A name belongs to a single kind of lock: a mistake in the program, not of the caller.
    let other_kind = elsewhere.get_fair_lock("recipes:user:ada")?.lock().await?;
    assert_eq!(post("ada").await, StatusCode::INTERNAL_SERVER_ERROR);
    other_kind.unlock().await?;

    // The lock is taken away while the work waits for its turn.
    let busy = orders.acquire_many(10).await?;
    let robbed = tokio::spawn(post("ada"));
    while orders.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(elsewhere.get_lock("recipes:user:ada")?.force_unlock().await?);
    drop(busy);
    assert_eq!(robbed.await?, StatusCode::CONFLICT);

    locks.shutdown(Duration::from_secs(5)).await?;
    assert_eq!(post("ada").await, StatusCode::SERVICE_UNAVAILABLE);
    println!("each of the statuses was seen: 200, 400, 409, 423, 429, 500, 503");
    Ok(())
}
