//! What a member does about a decision: it takes it, and tells others.

use std::collections::BTreeSet;

use super::{Action, Agreement, MemberId, Outcome};
use crate::wire::{AgreementMessage, Decision};

impl Agreement {
    pub(super) fn learn(
        &mut self,
        decision: Decision,
        from: Option<MemberId>,
        out: &mut Vec<Action>,
    ) {
        let next = decision.epoch == self.previous_epoch.epoch + 1;
        let survives = next && self.votes() && decision.survivors.contains(&self.me);
        let admitted = decision.admits(self.me);
        let concerns = match self.votes() {
            true => decision.epoch > self.previous_epoch.epoch,
            false => admitted,
        };
        if self.outcome != Outcome::Open || !concerns {
            return;
        }
        self.outcome = Outcome::Decided(decision.clone());
        let message = AgreementMessage::Decided(decision.clone());
        let others = self.told_of(&decision).into_iter();
        let others = others.filter(|to| *to != self.me.member_id && Some(*to) != from);
        out.extend(others.map(|member_id| Action::Send(member_id, message.clone())));
        out.push(match survives || (admitted && !self.votes()) {
            true => Action::Decided(decision),
            false => Action::Excluded(decision),
        });
    }

    /// Whom this member tells a decision: those that it passed the ballot on to, or all that it can
    /// reach if it knows of none; and each survivor one of the newcomers.
    fn told_of(&self, decision: &Decision) -> BTreeSet<MemberId> {
        let mut told = self.reached.clone();
        if let Some(node) = &self.node {
            told.retain(|member_id| node.branches.contains_key(member_id));
        }
        let mut pairs = decision.survivors.iter().zip(&decision.newcomers);
        let own = pairs.find(|(survivor, _)| **survivor == self.me);
        told.extend(own.map(|(_, newcomer)| newcomer.process.member_id));
        told
    }
}
