//! Simulated machines with known truth, and how often methods of comparing settings err on them.
//!
//! [`machine`] makes figures with the noise of real machines; [`trial`] runs races of [`crate::decide`] on them and
//! counts right and wrong answers; [`constructions`] does so for what is built one after the other, [`effects`] for the effects of dimensions, and [`practices`] for common ways of comparing settings, [`sessions`] for two sessions; [`report`] prints
//! all. The figures of a repetition follow from its seed alone.

pub mod constructions;
pub mod effects;
pub mod machine;
pub mod practices;
pub mod report;
pub mod sessions;
pub mod trial;
