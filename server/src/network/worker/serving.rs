//! What happens on one connection: receive, serve, send.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_wire::{Compressed, Error, Message, OpCode};

use super::{Disposition, Worker};
use crate::network::buffer::BUFFER_LEN;
use crate::network::connection::{Connection, Current, State};
use crate::network::inbox::{Completion, Event};
use crate::network::parked::Verdict;
use crate::network::poller::Readiness;
use crate::network::requests::{self, Place, Served};
use crate::network::slab::Token;
use crate::network::{Outcome, Resumed, Service};

/// How many bytes of replies may gather before they are sent and the client has to take them.
const OUTPUT_LEN_HIGH: usize = 64 * 1024;

/// What came of an attempt to receive.
enum Received {
    Bytes,
    Nothing,
    /// The budget has no memory for more.
    Starved,
    /// The client sends no more, or the connection is broken.
    End,
}

impl<S: Service> Worker<S> {
    /// The poller reports a connection.
    pub(super) fn on_connection_ready(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        readiness: Readiness,
    ) -> Disposition {
        if readiness.broken && connection.state != State::Ready {
            return Disposition::Close;
        }
        if readiness.writable && self.send(connection) == Disposition::Close {
            return Disposition::Close;
        }
        match connection.state {
            State::Ready if readiness.readable || readiness.hung_up => {
                self.receive(token, connection)
            }
            State::Ready => self.serve_received(token, connection),
            State::Repeating => {
                self.runnable.push_back(token);
                Disposition::Keep
            }
            State::Running | State::Waiting { .. } if readiness.hung_up => Disposition::Close,
            State::Running | State::Waiting { .. } | State::Parked { .. } => {
                connection.disturbed = true;
                Disposition::Keep
            }
        }
    }

    /// Receives once and serves what is complete.
    pub(super) fn receive(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
    ) -> Disposition {
        if connection.state != State::Ready || !connection.sendable().is_empty() {
            return Disposition::Keep;
        }
        match self.read(connection) {
            Received::Bytes => self.serve_received(token, connection),
            Received::Nothing => self.settle(connection),
            Received::Starved => {
                self.starve(token, connection);
                self.settle(connection)
            }
            Received::End => Disposition::Close,
        }
    }

    fn read(&mut self, connection: &mut Connection<S::Session>) -> Received {
        if connection.input.is_none() {
            connection.input = self.pool.try_take();
        }
        let Some(input) = &mut connection.input else {
            return Received::Starved;
        };
        if input.bytes.len() == input.bytes.capacity() {
            // The buffer doubles as bytes really arrive: a header that announces much costs nothing.
            let announced = match self.shared.decoder.frame(&input.bytes) {
                Ok(Some(length)) => length.get(),
                Ok(None) => BUFFER_LEN,
                Err(_) => return Received::End,
            };
            let missing = announced.saturating_sub(input.bytes.len());
            let more = missing.min(input.bytes.len().max(BUFFER_LEN));
            if more > 0 && !input.try_grow(more) {
                return Received::Starved;
            }
        }
        if input.bytes.len() == input.bytes.capacity() {
            return Received::Nothing; // a complete request is there: it comes first
        }
        match connection.transport.read(&mut input.bytes) {
            Ok(0) => Received::End,
            Ok(count) => {
                let count = u64::try_from(count).unwrap_or(0);
                self.shared
                    .counters
                    .bytes_in
                    .fetch_add(count, Ordering::Relaxed);
                Received::Bytes
            }
            Err(error) if is_transient(&error) => Received::Nothing,
            Err(_) => Received::End,
        }
    }

    /// The connection waits until there is memory.
    fn starve(&mut self, token: Token, connection: &mut Connection<S::Session>) {
        connection.starved = true;
        self.starved.push(token);
    }

    /// Serves the complete requests that are received, in order, and sends the replies.
    pub(super) fn serve_received(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
    ) -> Disposition {
        while connection.state == State::Ready && !connection.closing && !connection.starved {
            if connection.sendable().len() >= OUTPUT_LEN_HIGH
                && (self.send(connection) == Disposition::Close
                    || !connection.sendable().is_empty())
            {
                break;
            }
            match self.shared.decoder.frame(connection.unserved()) {
                Ok(Some(length)) if length.get() <= connection.unserved().len() => {
                    if let Err(error) = self.begin(token, connection, length.get()) {
                        refuse(connection, &error);
                    }
                }
                Ok(_) => break,
                Err(error) => refuse(connection, &error),
            }
        }
        self.settle(connection)
    }

    /// Sends, gives back what is not needed, and says whether the connection goes on.
    fn settle(&mut self, connection: &mut Connection<S::Session>) -> Disposition {
        if self.send(connection) == Disposition::Close {
            return Disposition::Close;
        }
        if connection.closing
            && connection.sendable().is_empty()
            && connection.state == State::Ready
        {
            return Disposition::Close;
        }
        if let (Some(input), None) = (&mut connection.input, &connection.current) {
            if connection.consumed > 0 {
                input.bytes.drain(..connection.consumed);
                connection.consumed = 0;
            }
            if input.bytes.is_empty() {
                if let Some(buffer) = connection.input.take() {
                    self.pool.put(buffer);
                }
            }
        }
        connection.update_receive_timer(self.now);
        self.drained(connection)
    }

    /// Sends as much as the client takes.
    fn send(&mut self, connection: &mut Connection<S::Session>) -> Disposition {
        let Some(output) = &connection.output else {
            return Disposition::Keep;
        };
        let pending = &output.bytes[connection.sent..connection.sendable_end()];
        if pending.is_empty() {
            return Disposition::Keep;
        }
        match connection.transport.write(pending) {
            Ok(count) => {
                connection.sent += count;
                let count = u64::try_from(count).unwrap_or(0);
                self.shared
                    .counters
                    .bytes_out
                    .fetch_add(count, Ordering::Relaxed);
                connection.stalled_since = None;
            }
            Err(error) if is_transient(&error) => {}
            Err(_) => return Disposition::Close,
        }
        if !connection.sendable().is_empty() {
            connection.stalled_since.get_or_insert(self.now);
        } else if connection
            .output
            .as_ref()
            .is_some_and(|o| o.bytes.len() == connection.sent)
        {
            connection.stalled_since = None;
            connection.sent = 0;
            if let Some(buffer) = connection.output.take() {
                self.pool.put(buffer);
            }
        }
        Disposition::Keep
    }

    /// Begins to serve the request that the unserved input starts with.
    fn begin(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        len: usize,
    ) -> Result<(), Error> {
        let message = Message::parse(&connection.unserved()[..len])?;
        let (mut form, mut compressor, mut inflated) = (message.op_code, None, None);
        if message.op_code == OpCode::Compressed {
            let compressed = Compressed::parse(&message)?;
            let buffer = self.pool.try_take().and_then(|mut buffer| {
                buffer.try_grow(compressed.inflated_len()).then_some(buffer)
            });
            let Some(mut buffer) = buffer else {
                self.starve(token, connection);
                return Ok(());
            };
            compressed.inflate(&mut buffer.bytes)?;
            form = Message::parse(&buffer.bytes)?.op_code;
            compressor = Some(compressed.compressor());
            inflated = Some(buffer);
        }
        connection.current = Some(Current {
            len,
            form,
            response_to: message.header.request_id,
            reply_id: 0,
            compressor,
            inflated,
            began: self.now,
            round: 0,
        });
        // The message is complete; the timer starts anew for the one after it.
        connection.partial_since = None;
        self.shared
            .counters
            .requests
            .fetch_add(1, Ordering::Relaxed);
        self.serve(token, connection, None);
        Ok(())
    }

    /// Serves the current request again and goes on with the connection.
    pub(super) fn resume(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        resumed: Option<Resumed>,
    ) -> Disposition {
        connection.state = State::Ready;
        if let (None, Some(current)) = (resumed, &mut connection.current) {
            current.began = self.now;
        }
        self.serve(token, connection, resumed);
        self.serve_received(token, connection)
    }

    /// Serves the current request, for the first time or again.
    fn serve(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        resumed: Option<Resumed>,
    ) {
        let reply_id = self.next_reply_id;
        self.next_reply_id = reply_id.wrapping_add(1);
        let mut output = connection.output.take().unwrap_or_else(|| self.pool.take());
        let (Some(session), Some(current), Some(input)) = (
            &mut connection.session,
            &mut connection.current,
            &connection.input,
        ) else {
            unreachable!("a connection that is ready has its session and its request");
        };
        current.reply_id = reply_id;
        let frame = &input.bytes[connection.consumed..connection.consumed + current.len];
        let bytes = current
            .inflated
            .as_ref()
            .map_or(frame, |inflated| &inflated.bytes);
        let out = &mut output.bytes;
        let service = &*self.shared.service;
        let served = requests::serve(
            service,
            session,
            current,
            bytes,
            resumed,
            Place::Worker,
            out,
        );
        output.settle();
        connection.output = Some(output);
        self.after(token, connection, &served);
    }

    /// Does what the outcome of a request asks for.
    fn after(&mut self, token: Token, connection: &mut Connection<S::Session>, served: &Served) {
        match served.outcome {
            Outcome::Done | Outcome::NoReply => {
                self.finish(token, connection, served.more_to_come, served.close);
            }
            Outcome::Acknowledge(wanted) => {
                connection.closing |= served.close;
                connection.state = State::Parked {
                    wanted,
                    start: served.start,
                };
                self.parked.park(token, &wanted);
                self.parked_new += 1;
            }
            Outcome::Offload => self.offload(token, connection),
            Outcome::Wait { until, ticket } => {
                connection.state = State::Waiting { until, ticket };
                if let Some(ticket) = ticket {
                    let inbox = Arc::clone(&self.inbox);
                    let wake = move || inbox.push(Event::Notified(token, ticket));
                    self.shared.notifier.wait(ticket, Box::new(wake));
                }
            }
            Outcome::Close => {
                connection.closing = true;
                self.finish(token, connection, false, true);
            }
        }
    }

    /// The current request has its reply.
    fn finish(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        more_to_come: bool,
        close: bool,
    ) {
        connection.closing |= close;
        if let (true, false, Some(current)) = (more_to_come, close, &mut connection.current) {
            current.round += 1;
            current.response_to = current.reply_id;
            connection.state = State::Repeating;
            self.runnable.push_back(token);
            return;
        }
        connection.state = State::Ready;
        if let Some(current) = connection.current.take() {
            connection.consumed += current.len;
            if let Some(buffer) = current.inflated {
                self.pool.put(buffer);
            }
        }
    }

    /// Hands the current request to an executor thread.
    fn offload(&mut self, token: Token, connection: &mut Connection<S::Session>) {
        let (Some(mut session), Some(input), Some(current)) = (
            connection.session.take(),
            connection.input.take(),
            &mut connection.current,
        ) else {
            unreachable!("the request was served a moment ago");
        };
        let mut output = self.pool.take();
        let inflated = current.inflated.take();
        let request = Current {
            inflated: None,
            ..*current
        };
        let consumed = connection.consumed;
        connection.state = State::Running;
        self.shared
            .counters
            .offloaded
            .fetch_add(1, Ordering::Relaxed);

        let service = Arc::clone(&self.shared.service);
        let inbox = Arc::clone(&self.inbox);
        self.shared.blocking_pool.submit(move || {
            let frame = &input.bytes[consumed..consumed + request.len];
            let bytes = inflated.as_ref().map_or(frame, |inflated| &inflated.bytes);
            let Served {
                outcome,
                more_to_come,
                close,
                ..
            } = requests::serve(
                &*service,
                &mut session,
                &request,
                bytes,
                None,
                Place::Executor,
                &mut output.bytes,
            );
            output.settle();
            inbox.push(Event::Completed(Box::new(Completion {
                token,
                session,
                input,
                inflated,
                output,
                outcome,
                more_to_come,
                close,
            })));
        });
    }

    /// A request comes back from an executor thread.
    pub(super) fn on_completed(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        completion: Completion<S::Session>,
    ) -> Disposition {
        let Completion {
            session,
            input,
            inflated,
            output,
            outcome,
            more_to_come,
            close,
            ..
        } = completion;
        connection.session = Some(session);
        connection.input = Some(input);
        connection.state = State::Ready;
        if connection.gone {
            self.pool.put(output);
            return Disposition::Close;
        }
        if let Some(current) = &mut connection.current {
            current.inflated = inflated;
        }
        let start = match &mut connection.output {
            None => {
                connection.output = Some(output);
                0
            }
            Some(pending) => {
                let start = pending.bytes.len();
                pending.bytes.extend_from_slice(&output.bytes);
                pending.settle();
                self.pool.put(output);
                start
            }
        };
        self.after(
            token,
            connection,
            &Served {
                outcome,
                start,
                more_to_come,
                close,
            },
        );
        self.serve_received(token, connection)
    }

    /// A parked reply waits no more.
    pub(super) fn unpark(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        verdict: Verdict,
    ) -> Disposition {
        let State::Parked { start, .. } = connection.state else {
            unreachable!("only parked connections are in the set");
        };
        if let (Some(current), Some(output), Some(session)) = (
            &connection.current,
            &mut connection.output,
            &mut connection.session,
        ) {
            let (service, out) = (&*self.shared.service, &mut output.bytes);
            match verdict {
                Verdict::Reached => {}
                Verdict::Failed => {
                    requests::fail(service, current, start, out);
                }
                Verdict::TimedOut => {
                    requests::time_out(service, session, current, start, out);
                }
            }
            output.settle();
        }
        self.finish(token, connection, false, false);
        self.serve_received(token, connection)
    }
}

/// A connection whose next message cannot be made out is closed once its replies are sent.
fn refuse<S>(connection: &mut Connection<S>, error: &Error) {
    tracing::info!(
        target: "NETWORK",
        id = 22_988_u32,
        connectionId = connection.id.0,
        remote = connection.transport.peer(),
        error = %error,
        "Error receiving request from client. Ending connection from remote"
    );
    connection.closing = true;
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
