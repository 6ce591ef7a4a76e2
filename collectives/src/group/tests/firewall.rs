//! TCP that does not get through, or no longer, where UDP does; and a rank whose datagrams come
//! from another port than before.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// What becomes of TCP.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Tcp {
    Passes,
    Stopped,
    /// Connections wait until there are so many, and pass together.
    Together(usize),
}

/// Far longer than it takes until somebody is looked for, and far shorter than patience.
const HUSH: Duration = Duration::from_millis(700);

/// Stands before rank 0 at an address of its own.
struct Wall {
    datagrams: Arc<UdpSocket>,
    /// Where rank 1 seems to be.
    back: Mutex<Arc<UdpSocket>>,
    /// Until when no datagram gets through.
    hush: Mutex<Option<Instant>>,
    streams: TcpListener,
    tcp: Tcp,
    /// Both ends of what has got through.
    through: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

impl Wall {
    fn new(tcp: Tcp) -> Self {
        let (datagrams, streams) = loop {
            let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(streams) = TcpListener::bind(datagrams.local_addr().unwrap()) {
                break (datagrams, streams);
            }
        };
        streams.set_nonblocking(true).unwrap();
        Self {
            datagrams: Arc::new(datagrams),
            back: Mutex::new(Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap())),
            hush: Mutex::default(),
            streams,
            tcp,
            through: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Two ranks meet, of which rank 1 reaches rank 0 through this only, and do this.
    fn between<R: Send>(
        &self,
        join: Duration,
        program: impl Fn(Result<Group, Error>) -> R + Sync,
    ) -> Vec<R> {
        let tls = Network::default().with_data_transport(DataTransport::Tls);
        self.between_by(tls, join, program)
    }

    fn between_by<R: Send>(
        &self,
        network: Network,
        join: Duration,
        program: impl Fn(Result<Group, Error>) -> R + Sync,
    ) -> Vec<R> {
        let behind = free_addresses(2);
        let front = self.datagrams.local_addr().unwrap().to_string();
        let members = [front, behind[1].clone()];
        let secret = JobSecret::generate().unwrap();
        thread::scope(|scope| {
            let _over = Ends(self);
            let (front, back) = (|| self.datagrams.clone(), || self.back());
            let [server, client] = [&behind[0], &behind[1]];
            scope.spawn(move || self.passes_on(front, back, server));
            scope.spawn(move || self.passes_on(back, front, client));
            scope.spawn(|| self.lets_through(scope, &behind[0]));
            each(Rank::all(2), |rank| {
                let timeouts = Timeouts::default().with_join(join);
                let mut config = config(&members, rank, &secret)
                    .with_timeouts(timeouts)
                    .with_host(format!("host {rank}"))
                    .with_transport(Transport::Quic)
                    .with_network(network);
                if rank == Rank::CHIEF {
                    config = config.with_bind(behind[0].parse().unwrap());
                }
                program(Group::connect(&config))
            })
        })
    }

    /// Ends all that has got through over TCP.
    fn cut(&self) {
        for stream in self.through.lock().unwrap().iter() {
            // The other end may have done it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn back(&self) -> Arc<UdpSocket> {
        self.back.lock().unwrap().clone()
    }

    /// Rank 1 seems to be elsewhere, and nobody listens where it was.
    fn moves(&self) {
        *self.back.lock().unwrap() = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    }

    /// No datagram gets through for a while.
    fn hushes(&self) {
        *self.hush.lock().unwrap() = Some(Instant::now() + HUSH);
    }

    fn is_hushed(&self) -> bool {
        let hush = *self.hush.lock().unwrap();
        hush.is_some_and(|until| Instant::now() < until)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn passes_on(
        &self,
        from: impl Fn() -> Arc<UdpSocket>,
        by: impl Fn() -> Arc<UdpSocket>,
        to: &str,
    ) {
        let mut datagram = [0; 65_536];
        while !self.is_over() {
            let from = from();
            from.set_read_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            if let Ok((bytes, _)) = from.recv_from(&mut datagram)
                && !self.is_hushed()
            {
                // A datagram that is lost is sent again.
                let _ = by().send_to(&datagram[..bytes], to);
            }
        }
    }

    fn lets_through<'scope>(&self, scope: &'scope thread::Scope<'scope, '_>, to: &str) {
        let mut waiting = Vec::new();
        while !self.is_over() {
            let Ok((near, _)) = self.streams.accept() else {
                thread::park_timeout(Duration::from_millis(1));
                continue;
            };
            let together = match self.tcp {
                Tcp::Stopped => continue,
                Tcp::Passes => 1,
                Tcp::Together(connections) => connections,
            };
            waiting.push(near);
            if waiting.len() >= together {
                waiting
                    .drain(..)
                    .for_each(|near| self.joins(scope, near, to));
            }
        }
    }

    fn joins<'scope>(&self, scope: &'scope thread::Scope<'scope, '_>, near: TcpStream, to: &str) {
        near.set_nonblocking(false).unwrap();
        let far = TcpStream::connect(to).unwrap();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            self.through.lock().unwrap().push(to.try_clone().unwrap());
            scope.spawn(move || pump(from, to));
        }
    }
}

/// Ends the wall's threads, also where a rank panics.
struct Ends<'a>(&'a Wall);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.cut();
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 65_536];
    while let Ok(more @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..more]).is_err() {
            return;
        }
    }
}

#[test]
fn a_member_whose_port_is_open_for_udp_alone_is_named_with_what_to_do() {
    let attempt = |patience| Wall::new(Tcp::Stopped).between(patience, Result::unwrap_err);
    let is_told = |error: &Error| matches!(error, Error::Join(JoinError::TcpUnreached { .. }));
    let errors = in_time(attempt, |errors| is_told(&errors[1]));
    let Error::Join(JoinError::TcpUnreached { peer, .. }) = &errors[1] else {
        panic!("{}", errors[1])
    };
    assert_eq!(peer.rank(), Rank::CHIEF);
    let text = errors[1].to_string();
    assert!(text.contains("open the port for TCP too"), "{text}");
    assert!(
        matches!(errors[0], Error::Join(JoinError::NotJoined { .. })),
        "{}",
        errors[0]
    );
}

#[test]
fn a_rank_whose_connection_over_tcp_breaks_is_named_though_it_is_alive() {
    let wall = Wall::new(Tcp::Passes);
    let errors = wall.between(PATIENCE, |group| {
        let mut group = group.unwrap();
        for step in 0.. {
            if step == 10 && group.rank() == Rank::CHIEF {
                wall.cut();
            }
            // What was under way when the connection broke may still arrive.
            if let Err(error) = group.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum) {
                return error;
            }
        }
        unreachable!("it goes on for ever")
    });
    // Each sees the break for itself, or hears of the other's word first.
    for error in &errors {
        let OperationError::RankLost { cause, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(*cause, LossCause::Disconnected);
    }
}

#[test]
fn the_lanes_of_a_group_are_dialled_at_once_whether_it_is_joined_or_split() {
    let tls = Network::default().with_data_transport(DataTransport::Tls);
    let network = tls.with_connections(3).unwrap();
    let sums = Wall::new(Tcp::Together(3)).between_by(network, PATIENCE, |group| {
        let mut group = group.unwrap();
        let mut part = group.split(Some(0), 0).unwrap().unwrap();
        let mut sum = [1.0_f32];
        part.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        drop(part);
        group.leave().unwrap();
        sum
    });
    assert_eq!(sums, [[2.0], [2.0]]);
}

#[test]
fn who_has_moved_is_not_lost_because_nobody_listens_where_it_was() {
    let wall = Wall::new(Tcp::Passes);
    let ended = wall.between_by(Network::default(), PATIENCE, |group| {
        let mut group = group?;
        for step in 0..4 {
            match (group.rank() == Rank::CHIEF, step) {
                (true, 1) => wall.moves(),
                (true, 3) => wall.hushes(),
                (true | false, _) => {}
            }
            group.all_reduce(&mut [1.0_f32; 100], ReduceOp::Sum)?;
        }
        group.leave().map_err(Error::from)
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}
