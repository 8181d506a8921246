PRAGMA application_id = 0;
PRAGMA user_version = 5;
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    level TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    durable INTEGER,
    finished INTEGER,
    error TEXT,
    notes TEXT NOT NULL DEFAULT '[]',
    part BLOB,
    part_ino INTEGER,
    files_total INTEGER NOT NULL DEFAULT 0,
    files_done INTEGER NOT NULL DEFAULT 0,
    bytes_total INTEGER NOT NULL DEFAULT 0,
    bytes_written INTEGER NOT NULL DEFAULT 0,
    bytes_verified INTEGER NOT NULL DEFAULT 0,
    source BLOB,
    part_born INTEGER,
    source_mount TEXT,
    destination_mount TEXT
);
CREATE TABLE entries (
    job INTEGER NOT NULL,
    path BLOB NOT NULL,
    kind INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    mtime_s INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_s INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    nlink INTEGER NOT NULL,
    digest BLOB,
    chunks BLOB,
    target BLOB,
    object TEXT,
    compared INTEGER NOT NULL,
    PRIMARY KEY (job, compared, path)
) WITHOUT ROWID;
CREATE TABLE chunks (
    job INTEGER NOT NULL,
    path BLOB NOT NULL,
    chunk INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (job, path, chunk)
) WITHOUT ROWID;
CREATE TABLE begun (
    job INTEGER NOT NULL,
    path BLOB NOT NULL,
    identity BLOB NOT NULL,
    destination_ino INTEGER NOT NULL,
    PRIMARY KEY (job, path)
) WITHOUT ROWID;
CREATE TABLE notes (
    job INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE expected (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    path BLOB NOT NULL,
    size INTEGER,
    digest BLOB,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE owned (
    directory BLOB NOT NULL,
    name BLOB NOT NULL,
    purpose TEXT NOT NULL,
    ino INTEGER,
    born INTEGER,
    own_name BLOB,
    PRIMARY KEY (directory, name)
) WITHOUT ROWID;
CREATE INDEX jobs_by_state ON jobs(state);
INSERT INTO jobs VALUES(1,'{"verb":"move","source":{"path":"/fast/step-1"},"destination":{"path":"/slow/step-1"},"options":{"bwlimit":1048576,"priority":5,"preserve":{"owner":false,"mode":true,"times":true,"xattrs":false,"acls":false,"sparse":true,"links":true},"digest":"xxh3","no_manifest":false,"latest":false,"background":false}}','queued','staged',0,1750000000,NULL,NULL,NULL,'[]',NULL,NULL,0,0,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO jobs VALUES(2,'{"verb":"move","source":{"path":"/fast/step-2"},"destination":{"path":"/slow/step-2"},"options":{"bwlimit":1048576,"priority":5,"preserve":{"owner":false,"mode":true,"times":true,"xattrs":false,"acls":false,"sparse":true,"links":true},"digest":"xxh3","no_manifest":false,"latest":false,"background":false}}','committed','durable',1,1750000001,1750000002,NULL,NULL,'[]',X'2E737465702E30303030303030302D303030302D343030302D383030302D3030303030303030303030302E70617274',NULL,0,0,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO jobs VALUES(3,'{"verb":"move","source":{"path":"/fast/step-3"},"destination":{"path":"/slow/step-3"},"options":{"bwlimit":1048576,"priority":5,"preserve":{"owner":false,"mode":true,"times":true,"xattrs":false,"acls":false,"sparse":true,"links":true},"digest":"xxh3","no_manifest":false,"latest":false,"background":false}}','done','durable',1,1750000001,1750000002,1750000003,NULL,'["a note"]',X'2E737465702E30303030303030302D303030302D343030302D383030302D3030303030303030303030302E70617274',NULL,0,0,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO jobs VALUES(4,'{"verb":"move","source":{"path":"/fast/step-4"},"destination":{"path":"/slow/step-4"},"options":{"bwlimit":1048576,"priority":5,"preserve":{"owner":false,"mode":true,"times":true,"xattrs":false,"acls":false,"sparse":true,"links":true},"digest":"xxh3","no_manifest":false,"latest":false,"background":false}}','running','staged',1,1750000004,NULL,NULL,NULL,'[]',NULL,NULL,0,0,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO entries VALUES(4,X'',1,0,493,1000,1000,1750000000,5,1750000000,6,10,2,NULL,NULL,NULL,NULL,0);
INSERT INTO entries VALUES(4,X'61',0,3,493,1000,1000,1750000000,5,1750000000,6,11,2,X'99AA06D3014798D86001C324468D497F00000000000000000000000000000000',NULL,NULL,'etag',1);
INSERT INTO entries VALUES(4,X'61',0,3,493,1000,1000,1750000000,5,1750000000,6,11,2,X'99AA06D3014798D86001C324468D497F00000000000000000000000000000000',NULL,NULL,NULL,0);
INSERT INTO entries VALUES(4,X'62',3,3,493,1000,1000,1750000000,5,1750000000,6,12,2,NULL,NULL,X'61',NULL,0);
INSERT INTO entries VALUES(4,X'63',2,0,493,1000,1000,1750000000,5,1750000000,6,13,2,NULL,NULL,X'61',NULL,0);
INSERT INTO chunks VALUES(4,X'6C61726765',1,X'0606060606060606060606060606060606060606060606060606060606060606');
INSERT INTO begun VALUES(4,X'6C61726765',X'39203320313735303030303030302E3520313735303030303030302E36',77);
INSERT INTO notes VALUES(4,'a key',X'612076616C7565');
INSERT INTO owned VALUES(X'2F66617374',X'2E737465702D342E70617274','begun',NULL,NULL,NULL);
