//! The taker for every store that a URL can name.

fn main() {
    lockkeeper_contract::taker::main(|url| async move { lockkeeper::open(&url).await });
}
