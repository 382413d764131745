//! Everyday work through the Rust driver against the server's binary.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc, oid::ObjectId};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::{IndexOptions, ReturnDocument};
use mongodb::{Client, Collection, IndexModel};

use crate::support::Server;

async fn connect(server: &Server) -> Client {
    Client::with_uri_str(server.uri())
        .await
        .expect("the URI is well-formed")
}

/// A collection of its own for each test.
async fn fresh(server: &Server) -> Collection<Document> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("mills{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    connect(server).await.database("driver").collection(&name)
}

#[tokio::test]
async fn documents_are_written_read_changed_and_deleted() {
    let server = Server::start(&[]);
    let mills = fresh(&server).await;
    let id = ObjectId::new();
    let written =
        doc! {"_id": id, "name": "Alder", "flow": 1.25, "nested": {"list": [1, 2_i64, null]}};
    mills.insert_one(&written).await.expect("inserted");
    assert_eq!(
        mills.find_one(doc! {"_id": id}).await.expect("found"),
        Some(written)
    );

    let changed = mills
        .find_one_and_update(
            doc! {"_id": id},
            doc! {"$inc": {"flow": 1}, "$push": {"nested.list": 3}},
        )
        .return_document(ReturnDocument::After)
        .await
        .expect("updated");
    let expected =
        doc! {"_id": id, "name": "Alder", "flow": 2.25, "nested": {"list": [1, 2_i64, null, 3]}};
    assert_eq!(changed, Some(expected));

    let upserted = mills
        .update_one(doc! {"name": "Birch"}, doc! {"$set": {"flow": 2}})
        .upsert(true)
        .await
        .expect("upserted");
    assert!(upserted.upserted_id.is_some());
    assert_eq!(mills.count_documents(doc! {}).await.expect("counted"), 2);
    assert_eq!(
        mills
            .delete_many(doc! {})
            .await
            .expect("deleted")
            .deleted_count,
        2
    );
    assert_eq!(mills.estimated_document_count().await.expect("counted"), 0);
}

#[tokio::test]
async fn cursors_return_every_document_once_in_order() {
    let server = Server::start(&[]);
    let mills = fresh(&server).await;
    let documents: Vec<_> = (0..2500).map(|n| doc! {"_id": n, "rest": n % 9}).collect();
    mills.insert_many(&documents).await.expect("inserted");
    let cursor = mills
        .find(doc! {"rest": {"$lt": 4}})
        .sort(doc! {"rest": -1, "_id": 1})
        .batch_size(100)
        .await
        .expect("found");
    let found: Vec<Document> = cursor.try_collect().await.expect("read");
    let mut expected: Vec<_> = documents
        .into_iter()
        .filter(|d| d.get_i32("rest").expect("an int") < 4)
        .collect();
    expected.sort_by_key(|d| {
        (
            -d.get_i32("rest").expect("an int"),
            d.get_i32("_id").expect("an int"),
        )
    });
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_unique_index_refuses_a_second_document() {
    let server = Server::start(&[]);
    let mills = fresh(&server).await;
    let unique = IndexOptions::builder().unique(true).build();
    let model = IndexModel::builder()
        .keys(doc! {"name": 1})
        .options(unique)
        .build();
    assert_eq!(
        mills.create_index(model).await.expect("created").index_name,
        "name_1"
    );
    mills
        .insert_one(doc! {"name": "Alder"})
        .await
        .expect("inserted");
    let error = mills
        .insert_one(doc! {"name": "Alder"})
        .await
        .expect_err("a duplicate");
    let ErrorKind::Write(WriteFailure::WriteError(error)) = *error.kind else {
        panic!("not a write error: {error}");
    };
    assert_eq!(error.code, 11000);
}

#[tokio::test]
async fn sixteen_writers_of_one_document_lose_no_update() {
    let server = Server::start(&[]);
    let mills = fresh(&server).await;
    mills
        .insert_one(doc! {"_id": 1, "n": 0})
        .await
        .expect("inserted");
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let mills = mills.clone();
            tokio::spawn(async move {
                for _ in 0..25 {
                    mills
                        .update_one(doc! {"_id": 1}, doc! {"$inc": {"n": 1}})
                        .await
                        .expect("updated");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("the writer ends");
    }
    let found = mills
        .find_one(doc! {"_id": 1})
        .await
        .expect("found")
        .expect("it is there");
    assert_eq!(found.get_i32("n").ok(), Some(400));
}

#[tokio::test]
async fn sixteen_upserts_of_one_key_make_one_document() {
    let server = Server::start(&[]);
    let mills = fresh(&server).await;
    let unique = IndexOptions::builder().unique(true).build();
    let model = IndexModel::builder()
        .keys(doc! {"key": 1})
        .options(unique)
        .build();
    mills.create_index(model).await.expect("created");
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let mills = mills.clone();
            tokio::spawn(async move {
                mills
                    .update_one(doc! {"key": "k"}, doc! {"$inc": {"n": 1}})
                    .upsert(true)
                    .await
                    .expect("upserted");
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("the writer ends");
    }
    let cursor = mills.find(doc! {}).await.expect("found");
    let found: Vec<Document> = cursor.try_collect().await.expect("read");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].get_i32("n").ok(), Some(16));
}

#[tokio::test]
async fn a_pipeline_groups_and_looks_up() {
    let server = Server::start(&[]);
    let mills = fresh(&server).await;
    let documents: Vec<_> = (0..100)
        .map(|n| doc! {"_id": n, "g": n % 4, "v": n})
        .collect();
    mills.insert_many(documents).await.expect("inserted");
    let cursor = mills
        .aggregate([
            doc! {"$match": {"v": {"$gte": 10}}},
            doc! {"$group": {"_id": "$g", "sum": {"$sum": "$v"}}},
            doc! {"$sort": {"_id": 1}},
        ])
        .await
        .expect("aggregated");
    let found: Vec<Document> = cursor.try_collect().await.expect("read");
    let sum = |g: i32| (10..100).filter(|v| v % 4 == g).sum::<i32>();
    let expected: Vec<_> = (0..4).map(|g| doc! {"_id": g, "sum": sum(g)}).collect();
    assert_eq!(found, expected);
}
