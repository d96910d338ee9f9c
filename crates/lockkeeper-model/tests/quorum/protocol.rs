//! Three nodes, two clients, and time that passes whenever it likes.
//!
//! What is in the model: requests that take any time, nodes that expire keys by their own clock, votes
//! of restarted nodes, renewals that take a lost key anew, tokens with floors. A client may stop at any
//! point and go on much later. What is left out: several attempts of one client, since one that begins
//! at any time stands for them; and answers on their way, since a client may look at them at any time.

use stateright::{Model, Property};

pub(super) const NODES: usize = 3;
pub(super) const CLIENTS: usize = 2;
const MAJORITY: usize = NODES / 2 + 1;
/// How many tokens there are to a tick of the nodes' clock.
const PER_TICK: u8 = 8;

/// How restarted nodes are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restarts {
    /// There are none.
    None,
    /// A restarted node votes at once.
    VoteAtOnce,
    /// It does not vote for a ttl, neither on claims nor on renewals.
    Delayed,
    /// It does not vote on claims for a ttl; but a key that is taken anew counts at once.
    DelayedExceptRenewals,
}

/// What may happen, and how clients count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol {
    pub(super) restarts: Restarts,
    /// One node's clock jumps ahead by a ttl.
    pub(super) clock_jump: bool,
    /// Validity counts from the decision, and not from before the question.
    pub(super) valid_from_reply: bool,
    /// Clients write to a resource, once each, also when they are late.
    pub(super) writes: bool,
    /// Clients renew, once each.
    pub(super) renewals: bool,
    /// How long a key lasts, in ticks.
    pub(super) ttl: u8,
    /// How many ticks pass.
    pub(super) ticks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Node {
    /// Who has the key, and until when by the node's clock.
    key: Option<(u8, u8)>,
    /// How far the node's clock is ahead.
    ahead: u8,
    /// When it was restarted.
    restarted: Option<u8>,
    /// The largest token it knows of.
    floor: u8,
    /// What it made of each client's question.
    votes: [Vote; CLIENTS],
    /// Who has had the key here, and who got it after another: known to nobody in the model.
    had: [bool; CLIENTS],
    later: [bool; CLIENTS],
}

/// What one node made of a client's question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
enum Vote {
    #[default]
    Unasked,
    UnderWay,
    /// It has the key; whether that counts, and whether the proposed token was above its floor.
    Yes {
        counts: bool,
        remembers: bool,
    },
    No,
}

impl Vote {
    fn is_cut_off(&mut self) {
        if *self == Self::UnderWay {
            *self = Self::No;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Client {
    /// When the question was sent whose answers are awaited.
    sent: Option<u8>,
    /// Held until then, by its own clock.
    deadline: Option<u8>,
    token: u8,
    proposed: u8,
    renewed: bool,
    asked: bool,
    wrote: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    now: u8,
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    faults_left: u8,
    /// How many have asked.
    asks: u8,
    /// The largest token of a grant.
    granted: u8,
    /// A grant did not get a larger token than those before it.
    token_went_back: bool,
    /// The largest token that wrote to a resource which checks it.
    fence: u8,
    /// A write came after that of another, which got the lock later.
    stale_came: bool,
    /// The same, and the resource that checks tokens let it through.
    stale_passed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Ask(usize),
    Renew(usize),
    Answer(usize, usize),
    Decide(usize),
    Write(usize),
    Restart(usize),
    Jump(usize),
}

impl Node {
    fn expire(&mut self, now: u8) {
        let clock = now + self.ahead;
        self.key = self.key.filter(|(_, until)| clock < *until);
    }

    fn take(&mut self, client: usize, until: u8) {
        self.key = Some((u8::try_from(client).unwrap_or(0), self.ahead + until));
        if !std::mem::replace(&mut self.had[client], true) {
            self.later[client] = self.had[other_than(client)];
        }
    }

    fn is_of(&self, client: usize) -> bool {
        self.key.is_some_and(|(holder, _)| usize::from(holder) == client)
    }
}

impl State {
    /// How many votes for the client count.
    fn votes_for(&self, client: usize) -> usize {
        let counts = |node: &&Node| matches!(node.votes[client], Vote::Yes { counts: true, .. });
        self.nodes.iter().filter(counts).count()
    }
}

/// There are two of them.
fn other_than(client: usize) -> usize {
    CLIENTS - 1 - client
}

impl Client {
    fn is_valid(&self, now: u8) -> bool {
        self.deadline.is_some_and(|deadline| now < deadline)
    }
}

impl Protocol {
    fn may_vote(&self, node: &Node, now: u8, renewal: bool) -> bool {
        let young = node.restarted.is_some_and(|at| now < at + self.ttl);
        match self.restarts {
            Restarts::None | Restarts::VoteAtOnce => true,
            Restarts::Delayed => !young,
            Restarts::DelayedExceptRenewals => renewal || !young,
        }
    }

    /// A node gets a client's question.
    fn answer(&self, state: &mut State, client: usize, number: usize) {
        let (now, asking) = (state.now, state.clients[client]);
        let node = &mut state.nodes[number];
        node.expire(now);
        let renewal = asking.deadline.is_some();
        node.votes[client] = if node.key.is_none() || node.is_of(client) {
            node.take(client, now + self.ttl);
            let remembers = node.floor < asking.proposed;
            node.floor = node.floor.max(asking.proposed);
            Vote::Yes { counts: self.may_vote(node, now, renewal), remembers }
        } else {
            Vote::No
        };
    }

    /// A client counts its votes.
    fn decide(&self, state: &mut State, client: usize) -> Option<()> {
        let (now, asking) = (state.now, state.clients[client]);
        let sent = asking.sent?;
        if state.votes_for(client) < MAJORITY {
            return None;
        }
        let deadline = if self.valid_from_reply { now } else { sent } + self.ttl;
        // An answer after the deadline of before is not believed.
        if now >= deadline || asking.deadline.is_some() && !asking.is_valid(now) {
            return None;
        }
        if asking.deadline.is_none() {
            let token = self.token(state, client)?;
            state.token_went_back |= token <= state.granted;
            state.granted = state.granted.max(token);
            state.clients[client].token = token;
        }
        let held = &mut state.clients[client];
        (held.sent, held.deadline) = (None, Some(deadline));
        // Answers that are still on their way change nothing any more.
        state.nodes.iter_mut().for_each(|node| node.votes[client] = Vote::Unasked);
        Some(())
    }

    /// The token of a claim that has its votes: the proposed one, if enough remember it; else a larger
    /// one, written where the claim still is.
    fn token(&self, state: &mut State, client: usize) -> Option<u8> {
        let asking = state.clients[client];
        let good = |node: &&Node| {
            matches!(node.votes[client], Vote::Yes { counts: true, remembers: true })
        };
        if state.nodes.iter().filter(good).count() >= MAJORITY {
            return Some(asking.proposed);
        }
        let now = state.now;
        state.nodes.iter_mut().for_each(|node| node.expire(now));
        let there = |number: &usize| {
            let node = &state.nodes[*number];
            matches!(node.votes[client], Vote::Yes { counts: true, .. }) && node.is_of(client)
        };
        let there: Vec<usize> = (0..NODES).filter(there).collect();
        if there.len() < MAJORITY {
            return None;
        }
        let floor = there.iter().map(|number| state.nodes[*number].floor).max()?;
        let token = (floor + 1).max(now * PER_TICK + state.asks);
        there.iter().for_each(|number| state.nodes[*number].floor = token);
        Some(token)
    }

    fn write(&self, state: &mut State, client: usize) {
        let (token, other) = (state.clients[client].token, other_than(client));
        state.clients[client].wrote = true;
        // Any two majorities share a node, and there one was before the other. The order in which clients
        // learn of their majorities says nothing: one may look at its votes much later.
        let is_later = |client: usize| state.nodes.iter().any(|node| node.later[client]);
        let stale = state.clients[other].wrote && is_later(other) && !is_later(client);
        state.stale_came |= stale;
        state.stale_passed |= stale && token >= state.fence;
        state.fence = state.fence.max(token);
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let faults = self.clock_jump || self.restarts != Restarts::None;
        vec![State {
            now: 1,
            nodes: Default::default(),
            clients: Default::default(),
            faults_left: u8::from(faults),
            asks: 0,
            granted: 0,
            token_went_back: false,
            fence: 0,
            stale_came: false,
            stale_passed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (number, client) in state.clients.iter().enumerate() {
            if !client.asked {
                actions.push(Action::Ask(number));
            }
            for (at, node) in state.nodes.iter().enumerate() {
                // A node that is being started answers nobody.
                let down = node.restarted.is_some_and(|at| state.now < at);
                if node.votes[number] == Vote::UnderWay && !down {
                    actions.push(Action::Answer(number, at));
                }
            }
            if client.sent.is_some() && state.votes_for(number) >= MAJORITY {
                actions.push(Action::Decide(number));
            }
            if client.deadline.is_some() && client.sent.is_none() {
                if self.renewals && client.is_valid(state.now) && !client.renewed {
                    actions.push(Action::Renew(number));
                }
                // Also long after its time: a process that was paused does not know.
                if self.writes && !client.wrote {
                    actions.push(Action::Write(number));
                }
            }
        }
        if state.faults_left > 0 {
            for node in 0..NODES {
                if self.restarts != Restarts::None {
                    actions.push(Action::Restart(node));
                }
                if self.clock_jump {
                    actions.push(Action::Jump(node));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::Tick => state.now += 1,
            Action::Ask(client) | Action::Renew(client) => {
                (state.clients[client].asked, state.clients[client].sent) = (true, Some(now));
                match action {
                    Action::Renew(_) => state.clients[client].renewed = true,
                    _ => {
                        // Who asks later reads a later time.
                        state.asks += 1;
                        state.clients[client].proposed = now * PER_TICK + state.asks;
                    }
                }
                state.nodes.iter_mut().for_each(|node| node.votes[client] = Vote::UnderWay);
            }
            Action::Answer(client, node) => self.answer(&mut state, client, node),
            Action::Decide(client) => self.decide(&mut state, client)?,
            Action::Write(client) => self.write(&mut state, client),
            Action::Restart(node) => {
                state.faults_left -= 1;
                // It takes a tick, in which the clock goes on.
                let Node { ahead, had, later, mut votes, .. } = state.nodes[node];
                let restarted = Some(now + 1);
                // A question does not outlive the connection that it was sent on.
                votes.iter_mut().for_each(|vote| vote.is_cut_off());
                state.nodes[node] = Node { ahead, votes, had, later, restarted, ..Node::default() };
            }
            Action::Jump(node) => {
                state.faults_left -= 1;
                state.nodes[node].ahead += self.ttl;
            }
        }
        // Which of the nodes is which makes no difference.
        state.nodes.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("claims exclude", |_, state: &State| {
                state.clients.iter().filter(|client| client.is_valid(state.now)).count() <= 1
            }),
            Property::always("tokens grow", |_, state: &State| !state.token_went_back),
            Property::always("a fence lets no stale write through", |_, state: &State| {
                !state.stale_passed
            }),
            // So that the others do not hold because nothing happens.
            Property::sometimes("one after the other", |_, state: &State| {
                state.clients.iter().all(|client| client.token > 0)
            }),
            Property::sometimes("a stale write comes", |model: &Self, state: &State| {
                state.stale_came || !model.writes
            }),
        ]
    }
}
