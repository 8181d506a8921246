//! The few requests that a set needs of a store, so that a store that fails on demand can stand in for a real one.
//!
//! Errors are `object_store`'s; the caller adds the key and the operation.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    Error, GetOptions, GetResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload,
    Result, UpdateVersion,
};

/// What a request comes to.
pub(super) type Answer<'a, T> = BoxFuture<'a, Result<T>>;

/// A store.
pub(super) trait Store: Send + Sync + 'static {
    /// What answers the requests that every store of `object_store` answers alike.
    fn objects(&self) -> &dyn ObjectStore;
    /// Stores an object whole; with `create`, only where none has its key.
    fn put(&self, key: Key, body: PutPayload, create: bool) -> Answer<'_, ()> {
        let mode = if create { PutMode::Create } else { PutMode::Overwrite };
        async move { self.objects().put_opts(&key, body, PutOptions::from(mode)).await.map(drop) }.boxed()
    }
    /// Stores an object whole in place of the one that has this ETag.
    fn replace(&self, key: Key, body: PutPayload, e_tag: String) -> Answer<'_, ()> {
        let mode = PutMode::Update(UpdateVersion { e_tag: Some(e_tag), version: None });
        async move { self.objects().put_opts(&key, body, PutOptions::from(mode)).await.map(drop) }.boxed()
    }
    /// Reads an object, or a range of it.
    fn get(&self, key: Key, range: Option<Range<u64>>) -> Answer<'_, GetResult> {
        async move { self.objects().get_opts(&key, GetOptions::new().with_range(range)).await }.boxed()
    }
    /// Begins an upload by parts, which has the identifier that is returned.
    fn begin(&self, key: Key) -> Answer<'_, String>;
    /// Uploads a part, counted from 0; what is returned names it when the upload is completed.
    fn part(&self, key: Key, upload: String, number: usize, body: PutPayload) -> Answer<'_, String>;
    /// Makes an object of the parts, in their order.
    fn complete(&self, key: Key, upload: String, parts: Vec<String>) -> Answer<'_, ()>;
    /// Gives an upload up, and its parts.
    fn abort(&self, key: Key, upload: String) -> Answer<'_, ()>;
    /// All objects beneath a prefix.
    fn list(&self, prefix: Key) -> BoxStream<'_, Result<ObjectMeta>> {
        self.objects().list((!prefix.is_root()).then_some(&prefix))
    }
    /// The prefixes right beneath one.
    fn children(&self, prefix: Key) -> Answer<'_, Vec<Key>> {
        async move {
            let prefix = (!prefix.is_root()).then_some(prefix);
            Ok(self.objects().list_with_delimiter(prefix.as_ref()).await?.common_prefixes)
        }
        .boxed()
    }
    /// Deletes objects; those that are not there are no error.
    fn delete(&self, keys: Vec<Key>) -> Answer<'_, ()> {
        async move {
            let keys = futures_util::stream::iter(keys.into_iter().map(Ok)).boxed();
            let mut deleted = self.objects().delete_stream(keys);
            loop {
                match deleted.try_next().await {
                    Ok(None) => return Ok(()),
                    Ok(Some(_)) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        .boxed()
    }
    /// Must parts come one after another, in their order?
    fn ordered(&self) -> bool {
        false
    }
}

/// A store that keeps uploads by their identifiers: S3, and memory.
pub(super) struct Remote<S>(Arc<S>);

impl<S: ObjectStore + MultipartStore> Remote<S> {
    pub fn new(store: Arc<S>) -> Self {
        Self(store)
    }
}

impl<S: ObjectStore + MultipartStore> Store for Remote<S> {
    fn objects(&self) -> &dyn ObjectStore {
        &*self.0
    }

    fn begin(&self, key: Key) -> Answer<'_, String> {
        async move { self.0.create_multipart(&key).await }.boxed()
    }

    fn part(&self, key: Key, upload: String, number: usize, body: PutPayload) -> Answer<'_, String> {
        async move { Ok(self.0.put_part(&key, &upload, number, body).await?.content_id) }.boxed()
    }

    fn complete(&self, key: Key, upload: String, parts: Vec<String>) -> Answer<'_, ()> {
        let parts = parts.into_iter().map(|content_id| PartId { content_id }).collect();
        async move { self.0.complete_multipart(&key, &upload, parts).await.map(drop) }.boxed()
    }

    fn abort(&self, key: Key, upload: String) -> Answer<'_, ()> {
        async move { self.0.abort_multipart(&key, &upload).await }.boxed()
    }
}

/// A directory as a store. Uploads live in this process: one that it did not begin is not found, and is begun again.
pub(super) struct Local {
    store: LocalFileSystem,
    uploads: Mutex<HashMap<String, Box<dyn MultipartUpload>>>,
    count: AtomicU64,
}

impl Local {
    pub fn new(store: LocalFileSystem) -> Self {
        Self { store, uploads: Mutex::default(), count: AtomicU64::new(0) }
    }

    fn take(&self, upload: &str) -> Result<Box<dyn MultipartUpload>> {
        let taken = self.uploads.lock().unwrap_or_else(PoisonError::into_inner).remove(upload);
        taken.ok_or_else(|| Error::NotFound { path: upload.to_owned(), source: "no such upload".into() })
    }
}

impl Store for Local {
    fn objects(&self) -> &dyn ObjectStore {
        &self.store
    }

    fn begin(&self, key: Key) -> Answer<'_, String> {
        async move {
            let upload =
                self.store.put_multipart_opts(&key, object_store::PutMultipartOptions::default()).await?;
            let id = format!("{}-{}", std::process::id(), self.count.fetch_add(1, Ordering::Relaxed));
            self.uploads.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), upload);
            Ok(id)
        }
        .boxed()
    }

    fn part(&self, _: Key, upload: String, number: usize, body: PutPayload) -> Answer<'_, String> {
        let written = {
            let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
            uploads.get_mut(&upload).map(|upload| upload.put_part(body))
        };
        async move {
            let missing = || Error::NotFound { path: upload, source: "no such upload".into() };
            written.ok_or_else(missing)?.await?;
            Ok(number.to_string())
        }
        .boxed()
    }

    fn complete(&self, _: Key, upload: String, _: Vec<String>) -> Answer<'_, ()> {
        async move { self.take(&upload)?.complete().await.map(drop) }.boxed()
    }

    fn abort(&self, _: Key, upload: String) -> Answer<'_, ()> {
        async move { self.take(&upload)?.abort().await }.boxed()
    }

    fn ordered(&self) -> bool {
        true
    }
}
