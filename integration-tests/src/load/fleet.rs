//! A fleet of proxies that connect, stay and disconnect together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_plane::sim::Follower;
use shared::tls::TlsError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time;

use super::dial::{Dial, Traffic, Way};
use super::proxy::{Order, Proxy};
use super::world::World;

/// Who comes, and where to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many.
    pub proxies: usize,
    /// Control planes; each proxy takes any of them each time.
    pub control_planes: Vec<SocketAddr>,
    /// How they are spoken to.
    pub way: Way,
    /// What the ids of all proxies begin with: the name in their certificate.
    pub name: String,
    /// The fleet that they belong to.
    pub group: String,
    /// How many of them start in a second; `None`: all at once.
    pub pace: Option<f64>,
}

/// A fleet. Its connections are cut when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    world: Arc<World>,
    traffic: Arc<Traffic>,
    orders: watch::Sender<Order>,
    proxies: JoinSet<()>,
}

impl Fleet {
    /// Starts all proxies of a plan; they connect as it says.
    ///
    /// # Errors
    /// If their certificate cannot be used.
    pub fn start(plan: &Plan) -> Result<Self, TlsError> {
        let (world, traffic) = (Arc::new(World::default()), Arc::new(Traffic::default()));
        let orders = watch::Sender::new(Order::Follow);
        let mut proxies = JoinSet::new();
        // Another number each time: to a control plane that has not forgotten the last fleet, this is another one.
        let first = fastrand::u32(..);
        for number in 0..plan.proxies {
            let to = |address: &SocketAddr| Dial::new(*address, &plan.way, Arc::clone(&traffic));
            let dials = plan.control_planes.iter().map(to).collect::<Result<Vec<_>, _>>()?;
            let id = format!("{}-{first:08x}{number:08x}", plan.name);
            let follower = Follower::new(&id, &format!("{}-node-{number}", plan.name), &plan.group);
            let proxy = Proxy::new(number, follower, dials, Arc::clone(&world), orders.subscribe());
            let wait = plan.pace.map(|pace| Duration::from_secs_f64(number as f64 / pace));
            let mut leaving = orders.subscribe();
            proxies.spawn(async move {
                if let Some(wait) = wait {
                    tokio::select! {
                        () = time::sleep(wait) => {}
                        _ = leaving.wait_for(|order| *order == Order::Leave) => return,
                    }
                }
                proxy.run().await;
            });
        }
        Ok(Self { world, traffic, orders, proxies })
    }

    /// What it has got to.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Bytes from the control plane and to it.
    pub fn bytes(&self) -> (u64, u64) {
        self.traffic.bytes()
    }

    /// All connections are cut at once, and made again.
    pub fn cut(&self) {
        self.orders.send_modify(|order| {
            *order = match *order {
                Order::Again(times) => Order::Again(times + 1),
                _ => Order::Again(1),
            };
        });
    }

    /// Everybody says goodbye; returns when they are gone.
    pub async fn leave(mut self) {
        self.orders.send_replace(Order::Leave);
        while self.proxies.join_next().await.is_some() {}
    }
}
