//! `flashwright schema`: what the documents look like, generated from the types that write them.

use clap::ValueEnum;
use schemars::schema_for;
use serde_json::{Map, Value};

use crate::args::{Document, SchemaArgs};
use crate::bench::figures::BenchReport;
use crate::bench::tasks::document::TasksReport;
use crate::bench::wsat::WsatReport;
use crate::failure::Failure;
use crate::layout::documents as layout;
use crate::output;
use crate::plan;
use crate::stage::documents as staging;
use crate::sweep::plan::PlanDocument;

/// Prints one schema, or all of them by name.
pub fn schema(args: &SchemaArgs) -> Result<(), Failure> {
    let value = match args.document {
        Some(document) => of(document),
        None => Value::Object(
            Document::value_variants().iter().map(|d| (name(*d), of(*d))).collect::<Map<_, _>>(),
        ),
    };
    output::print_document(&value)
}

fn name(document: Document) -> String {
    document.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn of(document: Document) -> Value {
    let schema = match document {
        Document::Run => schema_for!(measure::RunRecord),
        Document::Probe => schema_for!(storage::survey::Survey),
        Document::Ladder => schema_for!(measure::ladder::Ladder),
        Document::Bench => schema_for!(BenchReport),
        Document::BenchTasks => schema_for!(TasksReport),
        Document::Wsat => schema_for!(WsatReport),
        Document::Report => schema_for!(sweep::report::Report),
        Document::Plan => schema_for!(PlanDocument),
        Document::PlanEfficiency => schema_for!(plan::efficiency::EfficiencyDocument),
        Document::PlanCheckpoint => schema_for!(plan::checkpoint::CheckpointDocument),
        Document::PlanEndurance => schema_for!(plan::endurance::EnduranceDocument),
        Document::PlanHierarchy => schema_for!(plan::hierarchy::HierarchyDocument),
        Document::PlanTier => schema_for!(plan::tier::TierDocument),
        Document::Flashio => schema_for!(crate::flashio::FlashioDocument),
        Document::DbLoad => schema_for!(crate::db::document::DbLoadDocument),
        Document::DbRun => schema_for!(crate::db::document::DbRunDocument),
        Document::DbStream => schema_for!(crate::db::document::DbStreamDocument),
        Document::DbIngest => schema_for!(crate::db::document::DbIngestDocument),
        Document::DbCompare => schema_for!(crate::db::document::DbCompareDocument),
        Document::DbAdvise => schema_for!(crate::db::document::DbAdviseDocument),
        Document::Edges => schema_for!(crate::bfs::documents::EdgesDocument),
        Document::Graph => schema_for!(crate::bfs::documents::GraphDocument),
        Document::BfsExport => schema_for!(crate::bfs::documents::ExportDocument),
        Document::Bfs => schema_for!(crate::bfs::search::documents::BfsDocument),
        Document::BfsMany => schema_for!(crate::bfs::search::documents::ManyDocument),
        Document::BfsValidate => schema_for!(crate::bfs::search::documents::ValidateDocument),
        Document::BfsBench => schema_for!(crate::bfs::search::documents::BenchDocument),
        Document::BfsTiers => schema_for!(crate::bfs::search::documents::TiersDocument),
        Document::Status => schema_for!(sweep::status::Status),
        Document::Diff => schema_for!(sweep::diff::Diff),
        Document::Statistics => schema_for!(measure::simulation::report::Statistics),
        Document::SearchCheck => schema_for!(sweep::check_search::SearchCheck),
        Document::Papers => schema_for!(crate::sim::papers::PapersDocument),
        Document::Fit => schema_for!(crate::sim::fit::FitDocument),
        Document::Serve => schema_for!(crate::serve::Serving),
        Document::Volumes => schema_for!(volume::survey::Volumes),
        Document::Tune => schema_for!(crate::tune::document::TuneDocument),
        Document::Layout => schema_for!(layout::Up),
        Document::LayoutUndone => schema_for!(layout::Down),
        Document::LayoutStanding => schema_for!(layout::Show),
        Document::LayoutSurvey => schema_for!(layout::Survey),
        Document::VolumeData => schema_for!(volume::DataCheck),
        Document::VolumeCheck => schema_for!(volume::survey::Check),
        Document::StageStatus => schema_for!(staging::StageStatus),
        Document::StageWatch => schema_for!(staging::StageWatch),
        Document::StageVerify => schema_for!(staging::StageVerify),
        Document::StageEvict => schema_for!(staging::StageEvict),
        Document::StageSets => schema_for!(staging::StageSets),
        Document::StageDoctor => schema_for!(staging::StageDoctor),
        Document::StagePools => schema_for!(staging::StagePools),
        Document::StageReservation => schema_for!(staging::StageReservation),
        Document::Error => schema_for!(crate::failure::ErrorDocument),
        Document::StageRequest => schema_for!(stage_service::protocol::Request),
        Document::StageAnswer => schema_for!(stage_service::protocol::Answer),
        Document::StageManifestHeader => schema_for!(::stage::manifest::Header),
        Document::StageManifestEntry => schema_for!(::stage::manifest::Entry),
    };
    schema.to_value()
}
