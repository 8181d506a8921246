//! Threads that live as long as a search, each with its own engine, which cannot move between threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use super::steps::{Shared, Worker};
use crate::GraphError;
use crate::fetch::{FetchConfig, Fetcher, Traffic};
use crate::format::Index;

/// What a worker does in a level.
pub(super) type Step<'a> = fn(&mut Worker<'a>, &Shared<'a>) -> Result<(), GraphError>;

/// What workers are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outfit<'a> {
    pub shared: &'a Shared<'a>,
    pub index: &'a Index,
    pub traffic: &'a Traffic,
    pub fetch: FetchConfig,
}

impl<'a> Outfit<'a> {
    pub fn worker(self) -> Result<Worker<'a>, GraphError> {
        let fetcher = Fetcher::new(self.shared.graph, self.traffic, self.fetch)?;
        Ok(Worker::new(fetcher, self.index.cursor()))
    }
}

/// The calling thread's worker, and other threads with one each.
#[derive(Debug)]
pub(super) struct Crew<'a> {
    pub first: Worker<'a>,
    shared: &'a Shared<'a>,
    orders: Vec<Sender<Step<'a>>>,
    results: Receiver<Result<(), GraphError>>,
}

impl<'a> Crew<'a> {
    /// Starts `threads` − 1 threads. They end when the crew is dropped.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        outfit: Outfit<'a>,
    ) -> Result<Self, GraphError>
    where
        'a: 'scope,
    {
        let (report, results) = channel();
        let mut orders = Vec::new();
        for _ in 1..threads {
            let (order, steps) = channel::<Step<'a>>();
            let report = report.clone();
            scope.spawn(move || {
                let mut worker = outfit.worker();
                while let Ok(step) = steps.recv() {
                    let done = match &mut worker {
                        Ok(worker) => step(worker, outfit.shared),
                        Err(_) => std::mem::replace(&mut worker, outfit.worker()).map(drop),
                    };
                    if report.send(done).is_err() {
                        return;
                    }
                }
            });
            orders.push(order);
        }
        Ok(Self { first: outfit.worker()?, shared: outfit.shared, orders, results })
    }

    /// Lets all workers do a step; the first error of any.
    pub fn all(&mut self, step: Step<'a>) -> Result<(), GraphError> {
        self.shared.begin_step();
        for order in &self.orders {
            order.send(step).expect("a searching thread waits for orders");
        }
        let mut result = step(&mut self.first, self.shared);
        for _ in &self.orders {
            result = result.and(self.results.recv().expect("a searching thread reports each step"));
        }
        result
    }
}
