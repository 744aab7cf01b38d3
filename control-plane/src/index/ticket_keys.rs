//! Session ticket keys, while the fleet uses tickets: the ConfigMap's, else those of the record.

use bytes::Bytes;
use shared::kind::Kind;
use shared::resource::{Material, Resource, TICKET_KEYS, TicketKeys};

use super::Index;
use super::objects::reference;
use super::refs::{Site, User};
use crate::compile::ticket_keys;
use crate::objects::{Object, ObjectKind};
use crate::reference::Use;

impl Index {
    /// Publishes or removes the keys. `own`: the ConfigMap's key. The record is only referenced, and so created if it
    /// is missing, while it is needed.
    pub(super) fn compile_ticket_keys(&mut self, is_asked_for: bool, own: Option<Bytes>) {
        let record = reference(ObjectKind::Secret, &self.options.ticket_keys);
        let is_needed = is_asked_for && own.is_none();
        let wanted = is_needed.then(|| record.clone()).into_iter().collect();
        self.refer(&Site { user: User::Fleet, what: Use::TicketKeys }, wanted);
        let keys = match own.filter(|_| is_asked_for) {
            Some(own) => Some(TicketKeys(vec![own])),
            None => match self.objects.get(&record).and_then(|slot| slot.newest()) {
                Some(Object::Secret(secret)) if is_needed => ticket_keys::made(secret),
                _ => None,
            },
        };
        let is_changed = match keys {
            Some(keys) => self.published.put(TICKET_KEYS, &Resource::Material(Material::TicketKeys(keys))),
            // Proxies continue with keys of their own.
            None => self.published.remove(Kind::Material, TICKET_KEYS, true),
        };
        if is_changed {
            self.touched.mark(record);
        }
    }
}
