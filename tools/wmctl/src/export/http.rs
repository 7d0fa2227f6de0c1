//! The figures over HTTP: `GET /metrics`.
//!
//! One thread a connection, one answer a connection, and a bound on both their number and their
//! time: servers in libraries of this size have no time limit, so that a client that says nothing
//! holds a thread of theirs for good.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Connections that are served at a time; a later one is closed.
const MOST: usize = 64;

/// How long a client may take to ask, and again to read its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest head of a request, bytes.
const LONGEST: usize = 8 << 10;

const PAGE: &str = "wmshim: the figures are at /metrics\n";

/// An answer's status line and body.
type HttpAnswer = (&'static str, String);

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub(super) fn serve(address: SocketAddr, text: impl Fn() -> String + Sync) -> Result<()> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("{address} cannot be listened at; give another address after --listen"))?;
    // The port may have been left to the system.
    eprintln!("wmctl: serving http://{}/metrics", listener.local_addr()?);
    let served = AtomicUsize::new(0);
    thread::scope(|scope| {
        for stream in listener.incoming().flatten() {
            let (served, text) = (&served, &text);
            if served.fetch_add(1, Ordering::Relaxed) >= MOST {
                served.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                // A client that goes away loses its answer and nothing else.
                let _lost = answer(stream, text);
                served.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                served.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream, text: impl Fn() -> String) -> io::Result<()> {
    let head = head(&mut stream)?;
    let (status, body) = answer_to(&head, text);
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Reads up to the empty line behind the head of a request.
fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let (mut head, mut buffer) = (Vec::new(), [0_u8; 1024]);
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(head)
}

fn answer_to(head: &[u8], text: impl Fn() -> String) -> HttpAnswer {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(head).is_ok_and(|parsed| parsed.is_complete()) {
        return ("400 Bad Request", PAGE.to_owned());
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    match (request.method, path) {
        (Some("GET"), "/metrics") => ("200 OK", text()),
        (Some("GET"), "/") => ("200 OK", PAGE.to_owned()),
        (Some("GET"), _) => ("404 Not Found", PAGE.to_owned()),
        _ => ("405 Method Not Allowed", PAGE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): a request that is none is answered with the figures, or not at all.
    use super::*;

    #[test]
    fn only_a_request_for_the_figures_gets_them() {
        let status = |head: &str| answer_to(head.as_bytes(), || "figures".to_owned());
        assert_eq!(status("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"), ("200 OK", "figures".to_owned()));
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n").0, "200 OK");
        assert_eq!(status("GET /metric HTTP/1.1\r\n\r\n").0, "404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n").0, "405 Method Not Allowed");
        for bad in ["\r\n\r\n", "GET\r\n\r\n", "GET /metrics HTTP/9\r\n\r\n", "\u{0}\u{1}\r\n\r\n"] {
            assert_eq!(status(bad).0, "400 Bad Request", "{bad:?}");
        }
    }
}
