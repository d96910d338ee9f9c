//! Just enough of each protocol to see whether a server is ready, and to test the lab.
//!
//! Not the real drivers: the lab must not share bugs with what it tests.

pub mod http;
pub mod line;
pub mod mariadb;
pub mod postgres;
pub mod resp;
pub mod zookeeper;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
