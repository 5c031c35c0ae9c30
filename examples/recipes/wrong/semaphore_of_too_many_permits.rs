//! ```sh
//! cargo add latchwork
//! ```

use latchwork::AsyncSemaphore;

//~ 1099511627776 permits are more than MAX_PERMITS
static CALLS: AsyncSemaphore = AsyncSemaphore::new(1 << 40);

fn main() {
    println!("{}", CALLS.available_permits());
}
