PRAGMA application_id = 1718379618;
PRAGMA user_version = 1;
CREATE TABLE meta (document TEXT NOT NULL);
CREATE TABLE runs (
                     id INTEGER PRIMARY KEY,
                     block INTEGER NOT NULL,
                     tier TEXT NOT NULL,
                     query TEXT NOT NULL,
                     temperature TEXT NOT NULL,
                     query_key INTEGER NOT NULL,
                     elapsed_ns INTEGER NOT NULL,
                     rows INTEGER NOT NULL,
                     record TEXT NOT NULL,
                     UNIQUE (block, tier, query, temperature)
                 );
INSERT INTO meta VALUES('{"dataset":{"Ptf":{"candidates":1000,"seed":7}},"queries":["forward"],"tiers":[{"name":"ram","directory":"/tiers/ram","is_in_memory":true,"engine":{"version":"SQLite 3","settings":[["page_size","4096"]],"is_owned":true},"loaded":{"was_complete":false,"tables":[{"table":"candidate","resumed_rows":10,"rows":990,"load_s":0.5,"index_s":0.25}],"finish_s":0.125,"size_bytes":1048576},"direct":null},{"name":"disk","directory":"/tiers/disk","is_in_memory":false,"engine":{"version":"SQLite 3","settings":[["page_size","4096"]],"is_owned":true},"loaded":{"was_complete":false,"tables":[{"table":"candidate","resumed_rows":10,"rows":990,"load_s":0.5,"index_s":0.25}],"finish_s":0.125,"size_bytes":1048576},"direct":{"random_us":80.5,"sequential_bytes_per_s":1000000000.0}}],"notes":["guest-cold"]}');
INSERT INTO runs VALUES(1,0,'ram','forward','cold',3,1000,18,'{"block":0,"tier":0,"query":"forward","key":3,"temperature":"cold","answer":{"rows":18,"hash":18446744073709551615},"cost":{"elapsed_ns":1000,"cpu_ns":400,"io_ns":600,"blocks_read":80,"blocks_hit":null,"block_bytes":4096,"device_bytes":327680},"pages":{"bytes":327680,"runs":70,"scattered_bytes":307200}}');
INSERT INTO runs VALUES(2,0,'ram','forward','warm',3,1000,18,'{"block":0,"tier":0,"query":"forward","key":3,"temperature":"warm","answer":{"rows":18,"hash":18446744073709551615},"cost":{"elapsed_ns":1000,"cpu_ns":400,"io_ns":600,"blocks_read":null,"blocks_hit":null,"block_bytes":4096,"device_bytes":327680},"pages":null}');
INSERT INTO runs VALUES(3,0,'disk','forward','cold',3,1001,18,'{"block":0,"tier":1,"query":"forward","key":3,"temperature":"cold","answer":{"rows":18,"hash":18446744073709551615},"cost":{"elapsed_ns":1001,"cpu_ns":400,"io_ns":600,"blocks_read":80,"blocks_hit":null,"block_bytes":4096,"device_bytes":327680},"pages":{"bytes":327680,"runs":70,"scattered_bytes":307200}}');
INSERT INTO runs VALUES(4,0,'disk','forward','warm',3,1001,18,'{"block":0,"tier":1,"query":"forward","key":3,"temperature":"warm","answer":{"rows":18,"hash":18446744073709551615},"cost":{"elapsed_ns":1001,"cpu_ns":400,"io_ns":600,"blocks_read":null,"blocks_hit":null,"block_bytes":4096,"device_bytes":327680},"pages":null}');
