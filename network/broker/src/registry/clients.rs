//! The connected processes, and each user's share of the limits.

use millrace_stream::control::Message;
use rustix::io::Errno;

use super::{Action, ClientId, Credentials, Registry, reply};

/// A connected process with its share of the limits.
#[derive(Debug)]
pub struct Client {
    /// The user and process id when it connected.
    pub credentials: Credentials,
    /// Whether the process has sent HELLO.
    pub greeted: bool,
    /// Its connect requests that wait for a full backlog.
    pub waiting: usize,
}

/// A user's share of the limited resources.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    clients: usize,
    pub(super) listeners: usize,
    /// The sum of its listeners' backlogs.
    pub(super) backlogs: u32,
    pub(super) waiting: usize,
}

impl Registry {
    /// The connected processes with their ids.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.clients.iter().map(|(id, client)| (*id, client))
    }

    /// The connected process of an id.
    #[must_use]
    pub fn client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(&id)
    }

    pub(super) fn arrived(
        &mut self,
        id: ClientId,
        credentials: Credentials,
        actions: &mut Vec<Action>,
    ) {
        let limits = self.settings.limits;
        let user = self.users.entry(credentials.user).or_default();
        user.clients += 1;
        let too_many = user.clients > limits.clients_per_user_max;
        let client = Client {
            credentials,
            greeted: false,
            waiting: 0,
        };
        self.clients.insert(id, client);
        if too_many || self.clients.len() > limits.clients_max {
            self.refuse(id, 0, Errno::USERS, actions);
            self.disconnect(id, actions);
        }
    }

    pub(super) fn is_greeted(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.greeted)
    }

    pub(super) fn hello(&mut self, id: ClientId, serial: u32, actions: &mut Vec<Action>) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client.greeted {
            return self.disconnect(id, actions);
        }
        client.greeted = true;
        self.counters.processes += 1;
        let welcome = Message::Welcome {
            ring_lines: self.settings.ring_lines,
            spin_us_max: self.settings.spin_us_max,
        };
        reply(id, serial, welcome, actions);
    }

    pub(super) fn depart(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let number = client.credentials.user;
        if let Some(user) = self.users.get_mut(&number) {
            user.clients -= 1;
            user.waiting -= client.waiting;
        }
        self.forget_user(number);
        if client.waiting > 0 {
            self.listeners.forget_waiting(id);
        }
    }

    pub(super) fn forget_user(&mut self, number: u32) {
        if self.users.get(&number) == Some(&User::default()) {
            self.users.remove(&number);
        }
    }

    pub(super) fn disconnect(&mut self, id: ClientId, actions: &mut Vec<Action>) {
        self.depart(id);
        actions.push(Action::Disconnect { client: id });
    }
}
