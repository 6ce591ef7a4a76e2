//! Guests that come again and again, and those that do not read what they are told.

use std::net::Ipv4Addr;

use quinn::{ClientConfig, RecvStream, TransportConfig, VarInt};
use tokio::task::yield_now;

use super::*;
use crate::JobSecret;
use crate::quic::testing::PATIENCE;

const WORLD: u32 = 3;
/// Far more than there are ranks.
const TIMES: usize = 100;

/// Rank 1 of a rendezvous that listens at this address.
struct Caller {
    identity: Identity,
    dialler: Endpoint,
    address: SocketAddr,
}

impl Caller {
    fn of(secret: &JobSecret, host: &Endpoint) -> Self {
        let port = host.local_addr().unwrap().port();
        Self {
            identity: identity(secret, 1),
            dialler: endpoint::dialler(Ipv4Addr::LOCALHOST.into()).unwrap(),
            address: (Ipv4Addr::LOCALHOST, port).into(),
        }
    }

    /// Registers as one of so many, over a connection with these settings.
    async fn registers(&self, client: ClientConfig, world: u32) -> (Connection, RecvStream) {
        let name = self.identity.server_name(Role::Rank(Rank::CHIEF)).unwrap();
        let connecting = self
            .dialler
            .connect_with(client, self.address, &name.to_str());
        let connection = connecting.unwrap().await.unwrap();
        let (mut send, receive) = connection.open_bi().await.unwrap();
        let (rank, port) = (1, 61_001);
        let said = Message::Register(Registration { rank, world, port });
        control::write(&mut send, &said).await.unwrap();
        send.finish().unwrap();
        // All has arrived.
        send.stopped().await.unwrap();
        (connection, receive)
    }
}

fn identity(secret: &JobSecret, rank: u32) -> Identity {
    Identity::new(secret, Role::Rank(Rank::new(rank))).unwrap()
}

/// Rank 0 of a rendezvous, at a port that is free.
fn chief() -> Rendezvous {
    Rendezvous::new("127.0.0.1:0", Rank::CHIEF, WORLD, 61_000).unwrap()
}

async fn listens(rendezvous: &Rendezvous, identity: &Identity) -> Endpoint {
    let until = Instant::now() + PATIENCE;
    listen(rendezvous, identity, until).await.unwrap()
}

#[tokio::test]
async fn of_a_rank_that_registers_again_and_again_the_last_connection_is_kept_and_answered() {
    let (secret, rendezvous) = (JobSecret::generate().unwrap(), chief());
    let identity = identity(&secret, 0);
    let endpoint = listens(&rendezvous, &identity).await;
    let caller = Caller::of(&secret, &endpoint);
    let mut reception = Reception::new(&rendezvous, &identity);
    let again_and_again = async {
        let mut last: Option<(Connection, RecvStream)> = None;
        for _ in 0..TIMES {
            let client = endpoint::client(&caller.identity, Network::default());
            let registered = caller.registers(client, WORLD).await;
            if let Some((before, _)) = last.replace(registered) {
                let end = before.closed().await;
                let ConnectionError::ApplicationClosed(close) = end else {
                    panic!("{end:?}");
                };
                assert_eq!(close.error_code, TURNED_AWAY);
            }
        }
        // Those that are closed are soon gone.
        while endpoint.open_connections() > WORLD as usize {
            yield_now().await;
        }
        last.unwrap()
    };
    let (_connection, mut answer) = tokio::select! {
        last = timeout(PATIENCE, again_and_again) => last.unwrap(),
        () = reception.hear_until(&endpoint, |_| false) => unreachable!("it hears for ever"),
    };
    assert_eq!(reception.guests.len(), 1);
    let answered =
        async { tokio::join!(reception.answer_all(&endpoint), control::read(&mut answer)) };
    let (met, told) = timeout(PATIENCE, answered).await.unwrap();
    assert!(met.is_err());
    assert!(matches!(told, Ok(Message::Absent(_))), "{told:?}");
}

#[tokio::test]
async fn who_is_refused_has_its_place_until_it_has_read_why() {
    let (secret, rendezvous) = (JobSecret::generate().unwrap(), chief());
    let identity = identity(&secret, 0);
    let endpoint = listens(&rendezvous, &identity).await;
    let caller = Caller::of(&secret, &endpoint);
    let mut reception = Reception::new(&rendezvous, &identity);
    let mut deaf = TransportConfig::default();
    deaf.stream_receive_window(VarInt::from_u32(1));
    let mut client = ClientConfig::new(caller.identity.client());
    client.transport_config(Arc::new(deaf));
    let calls = caller.registers(client, WORLD + 1);
    let refuses = reception.hear_until(&endpoint, |here| !here.refused.is_empty());
    let refused = async { tokio::join!(calls, refuses) };
    let (_held, ()) = timeout(PATIENCE, refused).await.unwrap();
    // Each place holds what gives them, as the reception does.
    assert_eq!(Arc::strong_count(&reception.limiter), 2);
}
