//! Targets, kept open from run to run.

use std::collections::BTreeMap;

use measure::{Target, TargetError, Workload};

use crate::model::Point;

/// Opens what a sweep measures: drives for real, described machines in virtual time.
pub trait TargetFactory {
    /// Opens the target of a point. `spec` is [`Point::target`]; [`crate::model::SCRATCH`] is the
    /// sweep's own. The target is used for this point and for all later ones of the same
    /// [`key`](TargetFactory::key).
    ///
    /// # Errors
    /// [`TargetError::Refused`] and [`TargetError::Unanswered`] stop the sweep; any other one fails this run.
    fn open(&mut self, spec: &str, point: &Point) -> Result<Box<dyn Target>, TargetError>;

    /// What must agree for an open target to serve a point as well. By default whether it is opened
    /// with O_DIRECT and whether for writing.
    fn key(&self, point: &Point) -> String {
        format!("direct={} write={}", point.workload.direct, point.workload.rw.modifies())
    }

    /// Names the runs that come next, in their order, in place of those that were named before. A machine in virtual time computes
    /// them beforehand on all CPUs; on drives nothing may happen before its turn. They may come otherwise: some left out,
    /// some repeated.
    fn ahead(&mut self, _next: &mut dyn Iterator<Item = (&Point, Workload)>) {}
}

/// At most one open target for each device spec: a block device that is open for writing cannot be
/// opened a second time (O_EXCL).
pub(super) struct OpenTargets<'a> {
    factory: &'a mut dyn TargetFactory,
    open: BTreeMap<String, (String, Box<dyn Target>)>,
}

impl<'a> OpenTargets<'a> {
    pub fn new(factory: &'a mut dyn TargetFactory) -> Self {
        Self { factory, open: BTreeMap::new() }
    }

    /// The point's target, opened if it is not.
    pub fn open(&mut self, point: &Point) -> Result<&mut dyn Target, TargetError> {
        let key = self.factory.key(point);
        if self.open.get(&point.target).is_none_or(|(open, _)| *open != key) {
            // Closed first, see above.
            self.close(&point.target);
            let target = self.factory.open(&point.target, point)?;
            self.open.insert(point.target.clone(), (key, target));
        }
        let (_, target) = self.open.get_mut(&point.target).expect("it was put there");
        Ok(target.as_mut())
    }

    /// Leaves all of them open until the process ends.
    pub fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.open));
    }

    /// See [`TargetFactory::ahead`].
    pub fn ahead(&mut self, next: &mut dyn Iterator<Item = (&Point, Workload)>) {
        self.factory.ahead(next);
    }

    /// Closes the target of that spec, if it is open.
    pub fn close(&mut self, spec: &str) {
        self.open.remove(spec);
    }
}
