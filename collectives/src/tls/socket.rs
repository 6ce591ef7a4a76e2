//! TCP: where a rank listens, how it dials, and how connections are tuned.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::Congestion;

/// Callers that the kernel keeps until they are looked at.
const BACKLOG: i32 = 1024;

/// Bytes that the kernel keeps beyond what is under way. What is more goes out when
/// acknowledgements come, on whichever core they come to: beside what this one sends meanwhile, so
/// segments overtake each other, are taken for lost, and the connection is slow for seconds.
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
const UNSENT: u32 = 64 << 10;

/// Listens at exactly this address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // What connections of an earlier process leave behind holds no port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// Whether a caller waits to be taken in. Without a file to spare, the kernel refuses to take one
/// in before it looks whether there is one.
#[cfg(unix)]
pub(crate) fn somebody_waits(listener: &TcpListener) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut waits = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut waits, Some(&Timespec::default())).is_ok_and(|ready| ready == 1)
}

/// Not to be had here.
#[cfg(not(unix))]
pub(crate) fn somebody_waits(_: &TcpListener) -> bool {
    true
}

/// Connects; how long that may take is the caller's affair.
pub(crate) async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect(address).await
}

/// Sets a connection up: small messages go at once, and an end that no longer answers is noticed
/// within four times `silence`.
///
/// The kernel sizes the buffers, as it knows the path; a size that is set once would end that.
pub(crate) fn tune(stream: &TcpStream, congestion: Congestion, silence: Duration) {
    let socket = SockRef::from(stream);
    // The kernel counts them in seconds.
    let silence = silence.max(Duration::from_secs(1));
    let alive = TcpKeepalive::new()
        .with_time(2 * silence)
        .with_interval(silence);
    let tuned = [
        socket.set_tcp_nodelay(true),
        socket.set_tcp_keepalive(&alive),
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        socket.set_tcp_user_timeout(Some(4 * silence)),
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        socket.set_tcp_congestion(match congestion {
            Congestion::Cubic => b"cubic",
            Congestion::Bbr => b"bbr",
        }),
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        socket.set_tcp_notsent_lowat(UNSENT),
    ];
    // Slower, but no reason to fail: a kernel without BBR, say.
    for error in tuned.into_iter().filter_map(Result::err) {
        tracing::debug!(%error, ?congestion, "a setting of TCP was refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_tuned_as_they_are_asked_to() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let stream = dial(listener.local_addr().unwrap()).await.unwrap();
        tune(&stream, Congestion::Cubic, Duration::from_millis(1500));
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        {
            assert!(socket.tcp_congestion().unwrap().starts_with(b"cubic"));
            let timeout = socket.tcp_user_timeout().unwrap();
            assert_eq!(timeout, Some(Duration::from_secs(6)));
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), UNSENT);
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_caller_waits_from_its_call_until_it_is_taken_in() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(!somebody_waits(&listener));
        let _stream = dial(listener.local_addr().unwrap()).await.unwrap();
        assert!(somebody_waits(&listener));
        listener.accept().await.unwrap();
        assert!(!somebody_waits(&listener));
    }

    #[tokio::test]
    async fn a_port_that_somebody_listens_on_is_not_taken_over() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let second = listen(listener.local_addr().unwrap());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
