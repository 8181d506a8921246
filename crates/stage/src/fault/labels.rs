//! Names for what a move's safety rests on: each sync ([`Barrier`]) and each check of identity ([`Check`]).
//!
//! A [`Plan`](super::Plan) can leave out one of them, so that a test can show what is lost without it. docs/faults.md
//! holds the table of both; `stage-service/tests/crash/left_out.rs` has a case for each and compares the table.

/// Defines an enum of labels: for each its word, where it stands, and what is lost without it.
macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal, $place:literal, $loss:literal;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`: ", $place, ". Without it: ", $loss, ".")] $variant,)*
        }

        impl $name {
            /// All of them, in the order in which a move comes to them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in tables and orders.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Which call or comparison it is.
            #[must_use]
            pub const fn place(self) -> &'static str {
                match self { $(Self::$variant => $place,)* }
            }

            /// What is lost if it is left out.
            #[must_use]
            pub const fn loss(self) -> &'static str {
                match self { $(Self::$variant => $loss,)* }
            }

            /// The label of this name.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|label| label.word() == word)
            }
        }
    };
}

/// A step of a move that rests on syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// The request is told that it is a job.
    Accepted,
    /// The job is called local.
    Local,
    /// Holes are looked for in a source file.
    Sought,
    /// An equal copy of another program is compared.
    Compared,
    /// Copies are recorded, which a resumed move trusts.
    Recorded,
    /// The journal forgets a part that was removed.
    Forgotten,
    /// The part gets its name.
    Renamed,
    /// COMMITTED is written, with which the job is called durable.
    Committed,
    /// A name is removed.
    Removed,
    /// The job is called done.
    Done,
}

impl Moment {
    /// What comes next.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Accepted => "the request is accepted",
            Self::Local => "the job is called local",
            Self::Sought => "holes are looked for",
            Self::Compared => "the copy is compared",
            Self::Recorded => "the copy is recorded",
            Self::Forgotten => "the journal forgets the part",
            Self::Renamed => "the rename",
            Self::Committed => "COMMITTED",
            Self::Removed => "the first removal",
            Self::Done => "the job is called done",
        }
    }
}

impl Barrier {
    /// The step that it has to come before.
    #[must_use]
    pub const fn before(self) -> Moment {
        match self {
            Self::JournalName | Self::JournalCommit => Moment::Accepted,
            Self::SourceFileSystem | Self::SourceFile => Moment::Local,
            Self::SourceHoles => Moment::Sought,
            Self::Adopted
            | Self::AdoptedObjects
            | Self::ExistingFileSystem
            | Self::ExistingFile
            | Self::ExistingDirectory
            | Self::ExistingName => Moment::Compared,
            Self::PartDiscarded => Moment::Forgotten,
            Self::SmallFile
            | Self::SingleFile
            | Self::SmallGroup
            | Self::LinkedGroup
            | Self::ChunkGroup
            | Self::SharedBlocks
            | Self::LargeFile
            | Self::FetchedChunks
            | Self::FetchedFile => Moment::Recorded,
            Self::Directory
            | Self::Manifest
            | Self::SetFileSystem
            | Self::FetchedDirectory
            | Self::FetchedManifest
            | Self::FetchedRoot
            | Self::PartNames
            | Self::SetRecord => Moment::Renamed,
            Self::NewParent
            | Self::AdoptedMetadata
            | Self::FetchedMetadata
            | Self::StoredObjects
            | Self::Name => Moment::Committed,
            Self::Doomed | Self::SlowCopy | Self::NewerSet => Moment::Removed,
            Self::SourceRemoved
            | Self::SemaphoreRemoved
            | Self::TakenApart
            | Self::GivenBack
            | Self::SetRecordName
            | Self::Latest
            | Self::LatestAgain => Moment::Done,
        }
    }
}

labels! {
    /// A call that makes something durable.
    Barrier {
        JournalName = "journal-name",
            "fsync of the state directory and its parent, when the journal is opened",
            "a new journal has no name after a power cut, and a move that was accepted is forgotten";
        JournalCommit = "journal-commit",
            "fsync of the write-ahead log at each commit, by SQLite (synchronous=FULL)",
            "a job that was accepted is forgotten after a power cut";
        SourceFileSystem = "source-file-system",
            "syncfs of the source's file system, before anything is read",
            "a source that was said to be local is gone after a power cut";
        SourceFile = "source-file",
            "fsync of a source that is one file, where syncfs does not vouch",
            "a source that was said to be local is gone after a power cut";
        SourceHoles = "source-holes",
            "fsync of a large file of a source, where syncfs does not vouch",
            "data that is on its way to the medium is taken for a hole, and left out of the copy";
        NewParent = "new-parent",
            "fsync of the directory in which a parent of the destination was made",
            "the destination's directory is gone after a power cut, and with it the copy";
        ExistingFileSystem = "existing-file-system",
            "syncfs of a file system that holds a copy already, before it is compared",
            "a copy that another program made is believed, and is gone after a power cut";
        ExistingFile = "existing-file",
            "fsync of each file of a copy that is there already, where syncfs does not vouch",
            "a copy that another program made is believed, and is empty after a power cut";
        ExistingDirectory = "existing-directory",
            "fsync of each directory of a copy that is there already, where syncfs does not vouch",
            "names in a copy that another program made are gone after a power cut";
        ExistingName = "existing-name",
            "fsync of the directory that a copy is in that is there already, where syncfs does not vouch",
            "a copy that another program made has no name after a power cut";
        Adopted = "adopted",
            "all of these, for a destination that exists, before it is compared",
            "a copy that another program made is believed, and is gone after a power cut";
        AdoptedMetadata = "adopted-metadata",
            "all of these, for a destination that exists, after the metadata that was asked for was set",
            "the copy has another mode or time after a power cut";
        AdoptedObjects = "adopted-objects",
            "all of these, for a set of an object store in a directory that exists, before it is compared",
            "a set that another program stored is believed, and is gone after a power cut";
        PartDiscarded = "part-discarded",
            "fsync of the destination's directory, after a part was removed that cannot be gone on with",
            "what was removed comes back after a power cut, under a name that no journal knows";
        SmallFile = "small-file",
            "fsync of a small copy, where syncfs does not vouch",
            "the copy is empty or short after a power cut";
        SingleFile = "single-file",
            "fsync of a small copy that is moved alone",
            "the copy is empty or short after a power cut";
        SmallGroup = "small-group",
            "syncfs after a group of small copies was written",
            "a resumed move trusts recorded copies that are not durable";
        LinkedGroup = "linked-group",
            "syncfs after copies of files of several names were written",
            "a resumed move trusts recorded copies that are not durable";
        ChunkGroup = "chunk-group",
            "fdatasync after a group of chunks was written",
            "a resumed move trusts recorded chunks that are not durable";
        SharedBlocks = "shared-blocks",
            "fdatasync after FICLONE",
            "the copy is empty after a power cut";
        LargeFile = "large-file",
            "fsync of a copy by chunks, after its metadata was set",
            "the copy has another owner, mode or time after a power cut";
        Directory = "directory",
            "fsync of a copied directory",
            "names in it are gone after a power cut";
        Manifest = "manifest",
            "fsync of the manifest",
            "the manifest is empty after a power cut";
        SetFileSystem = "set-file-system",
            "syncfs of the complete part, before the rename",
            "directories and their metadata are gone after a power cut";
        Name = "name",
            "fsync of the destination's directory, after the rename",
            "the copy has no name after a power cut, and its source is gone";
        StoredObjects = "stored-objects",
            "all of these, for a set that was stored in an object store in a directory",
            "directories that an attempt made that was killed are gone after a power cut, and with them the set";
        SourceRemoved = "source-removed",
            "fsync of the source's directory, after the source was removed",
            "a source that is said to be gone comes back after a power cut";
        SemaphoreRemoved = "semaphore-removed",
            "fsync of the semaphore's directory, after it was removed",
            "the semaphore comes back after a power cut, and asks for the move again";
        PartNames = "part-names",
            "fsync of a set's directory, before the record of its parts is published",
            "a set is complete after a power cut, and a part of another node has no name";
        SetRecord = "set-record",
            "fsync of the record of a set of parts",
            "the record is empty after a power cut";
        SetRecordName = "set-record-name",
            "fsync of a set's directory, after the record of its parts got its name",
            "a set that was complete is not after a power cut";
        Latest = "latest",
            "fsync of the tier's directory, after `latest` was replaced",
            "`latest` leads to an older set after a power cut";
        LatestAgain = "latest-again",
            "fsync of the tier's directory, where `latest` is right already",
            "`latest` leads to an older set after a power cut, if another mover replaced it and died";
        SlowCopy = "slow-copy",
            "all of these, for the slow copy of a set that is evicted",
            "the fast copy is removed, and the slow one is gone after a power cut";
        NewerSet = "newer-set",
            "all of these, for the newer set because of which an older one is removed",
            "the older set is removed, and the newer one is gone after a power cut";
        GivenBack = "given-back",
            "fsync of the tier's directory, after a set that is not removed got its name back",
            "a set that stays has lost its name after a power cut, and no journal knows it";
        Doomed = "doomed",
            "fsync of the tier's directory, after a set lost its name",
            "half of a removed set is under the set's name after a power cut";
        TakenApart = "taken-apart",
            "fsync of the tier's directory, after a set that had lost its name was removed",
            "what was removed comes back after a power cut, under a name that no journal knows";
        FetchedChunks = "fetched-chunks",
            "fdatasync before fetched chunks are noted",
            "a resumed fetch trusts chunks that were lost, and begins anew when it reads them back";
        FetchedFile = "fetched-file",
            "fsync of a fetched file",
            "the copy is empty or short after a power cut";
        FetchedDirectory = "fetched-directory",
            "fsync of a fetched directory",
            "names in it are gone after a power cut";
        FetchedRoot = "fetched-root",
            "fsync of a fetched set's own directory, after its manifest was written",
            "the manifest's name is gone after a power cut";
        FetchedMetadata = "fetched-metadata",
            "all of these, for a destination that equals a fetched set, after its metadata was set",
            "the copy has another mode or time after a power cut";
        FetchedManifest = "fetched-manifest",
            "fsync of a fetched set's manifest",
            "the manifest is empty after a power cut";
    }
}

labels! {
    /// A comparison that tells one file, or one state of a file, from another.
    Check {
        SourceIsNotDestination = "source-is-not-destination",
            "device and inode of the source and of what has the destination's name",
            "the source, under another name, is taken for its copy, and is removed";
        InnerMounts = "inner-mounts",
            "mount of a source or an existing copy and of everything below it",
            "what is mounted in a source is emptied with it";
        DestinationOutsideSource = "destination-outside-source",
            "device and inode of the source and of each directory above the destination",
            "a directory is copied into itself";
        Mount = "mount",
            "mount of the source and of the destination's directory and the journal's",
            "a job that goes on while a tier is not mounted publishes under the mount point";
        InMemory = "in-memory",
            "kinds of the file systems of the source and of the destination",
            "a source on a disk is removed for a copy that a restart loses";
        Distinct = "distinct",
            "whether a file made in the source appears in a destination that exists",
            "a source that is seen through an overlay is taken for its copy, and both are removed";
        AdoptedNames = "adopted-names",
            "names and kinds of the source and of a destination that exists",
            "a destination with other names is taken for the copy";
        AdoptedBytes = "adopted-bytes",
            "digests of the source and of a destination that exists",
            "a destination with other bytes is taken for the copy";
        AdoptedLater = "adopted-later",
            "names and identities of a destination that exists, from before it is synced, after it was compared",
            "what another program writes to a destination after it was read is taken for the copy";
        PartOnResume = "part-on-resume",
            "inode and birth of the part and the journal's",
            "what another program made under the part's name is gone on with";
        DiscardedPart = "discarded-part",
            "inode and birth of what has a part's name and the journal's, before it is removed",
            "what another program made under the part's name is removed";
        PartBeforeRename = "part-before-rename",
            "inode and birth of the part, before it is renamed",
            "what another program put in the part's place is published";
        PartAfterRename = "part-after-rename",
            "inode and birth of what the destination's path leads to, after the rename",
            "what is called durable is not at the destination's path: it was replaced";
        Claim = "claim",
            "mode and kind of what has the destination's name, before a directory is renamed over it",
            "an empty directory of another program is replaced by the copy";
        NameAfterError = "name-after-error",
            "device and inode of the part and of what has the destination's name, after link(2) has failed",
            "the copy is removed because another program's file has its name";
        RenamedPartBytes = "renamed-part-bytes",
            "digests of a renamed part and the journal's, after a crash",
            "a copy that changed between the rename and COMMITTED is trusted";
        SourceOnResume = "source-on-resume",
            "identity of a source file and the journal's, when a small copy is kept by a resumed move",
            "a resumed move keeps the old copy of a file that has changed, and fails when the source is walked again";
        ChunksOnResume = "chunks-on-resume",
            "identity of a source file and inode of its copy, when chunks are kept by a resumed move",
            "a resumed move mixes chunks of two states of a file";
        SourceAfterRead = "source-after-read",
            "names and identities of the whole source and what was copied, before the rename",
            "a source that changed while it was copied is published as a mixture";
        SmallReadBack = "small-read-back",
            "digest of a small copy, read around the cache",
            "a copy that the medium changed is published";
        ChunkReadBack = "chunk-read-back",
            "digest of a chunk, read around the cache",
            "a copy that the medium changed is published";
        LinkReadBack = "link-read-back",
            "target of a copied symbolic link",
            "a link that leads elsewhere is published";
        ManifestReadBack = "manifest-read-back",
            "digests and entries of the manifest, read around the cache",
            "a damaged manifest is published";
        SourceManifest = "source-manifest",
            "digests of the copy and of the source's own manifest",
            "a set that rotted is published with a manifest that vouches for it";
        CommittedDestination = "committed-destination",
            "inode of the destination and the journal's, before the source is removed",
            "the source is removed although its copy is gone";
        CommittedBytes = "committed-bytes",
            "digests of a committed copy and the journal's, before a run that goes on removes the source",
            "the source is removed although its copy was changed since another run made it";
        SourceBeforeRemoval = "source-before-removal",
            "identity of a source file, before it is removed",
            "what was written to the source after its copy is lost";
        SourceBytesInMemory = "source-bytes-in-memory",
            "bytes of a source file in memory (tmpfs) and the journal's digests, before it is removed",
            "what was stored to the source through a shared mapping after its copy is lost";
        SemaphoreBeforeRemoval = "semaphore-before-removal",
            "identity of a semaphore and of the one that was read, before it is removed",
            "a semaphore that was replaced while the first one's job ran is removed, and what it asks for is never moved";
        EvictedItself = "evicted-itself",
            "whether a file made in a fast copy appears in its slow copy",
            "a fast copy that is its own slow copy, seen through an overlay, is removed, and was the only one";
        EvictedNames = "evicted-names",
            "names, sizes and times of a fast copy that has lost its name and its slow copy's manifest",
            "what was written to a fast copy while its slow copy was read is removed with it";
        EvictedBytesInMemory = "evicted-bytes-in-memory",
            "bytes of a fast copy in memory (tmpfs) and its slow copy's manifest",
            "what was stored to a fast copy through a shared mapping after it was copied is removed with it";
        TakenAside = "taken-aside",
            "inode and birth of what has the name of a set that was taken aside and the journal's, after a crash",
            "what another program made gets the set's name, and the set is lost under no name";
        PartRecord = "part-record",
            "run, step, rank and number of ranks that a part's manifest states and its place",
            "a set with a part of another run is complete";
        FetchedOnResume = "fetched-on-resume",
            "identity of a fetched file and the journal's",
            "a fetched file that was replaced is trusted";
        FetchedReadBack = "fetched-read-back",
            "digests of a fetched file, read around the cache",
            "a copy that the medium changed is published";
    }
}
