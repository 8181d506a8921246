PRAGMA application_id = 1718383464;
PRAGMA user_version = 3;
CREATE VIEW results AS SELECT 
    f.kind AS kind, f.id AS id, t.fate AS fate, p.test_type AS test_type, p.label AS label, p.target AS target, CASE WHEN json_extract(p.settings, '$."iodepth"') GLOB '*[^0-9]*' OR json_extract(p.settings, '$."iodepth"') = '' THEN json_extract(p.settings, '$."iodepth"') ELSE CAST(json_extract(p.settings, '$."iodepth"') AS INTEGER) END AS "iodepth",
    f.pass AS pass, f.started_unix_ns AS started_unix_ns, f.interval_ns AS interval_ns,
    (SELECT group_concat(direction, '+') FROM (SELECT direction FROM directions WHERE record = f.record ORDER BY direction))
        AS direction,
    f.bytes AS bytes, f.ios AS ios, f.bandwidth_bytes_per_s AS bandwidth_bytes_per_s, f.iops AS iops,
    f.latency_ns_mean AS latency_ns_mean, f.latency_ns_p50 AS latency_ns_p50, f.latency_ns_p99 AS latency_ns_p99,
    f.latency_ns_p99_9 AS latency_ns_p99_9, f.latency_ns_max AS latency_ns_max,
    c.user_ns * 1.0 / max(f.ios, 1) AS cpu_user_ns_per_io, c.system_ns * 1.0 / max(f.ios, 1) AS cpu_system_ns_per_io,
    v.word AS limited_by, f.warnings AS warnings, f.point AS point, f.session AS session, f.record AS record FROM (SELECT 'run' AS kind, runs.* FROM runs UNION ALL SELECT 'control' AS kind, controls.* FROM controls UNION ALL SELECT 'repeated' AS kind, voided.* FROM voided) f JOIN points p ON p.id = f.point
         LEFT JOIN fates t ON t.record = f.record LEFT JOIN cpu c ON c.record = f.record
         LEFT JOIN verdicts v ON v.record = f.record;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE points (
            id INTEGER PRIMARY KEY,
            label TEXT NOT NULL,
            test_type INTEGER,
            target TEXT NOT NULL,
            settings TEXT NOT NULL, -- JSON: dimension → value
            workload TEXT NOT NULL, -- JSON
            layout TEXT NOT NULL -- JSON: option → value; {} where nothing is built
         ) STRICT;
CREATE TABLE plan (
            position INTEGER PRIMARY KEY,
            kind TEXT NOT NULL CHECK (kind IN ('run', 'control')),
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            UNIQUE (position, point, pass)
         ) STRICT;
CREATE TABLE sessions (
            id INTEGER PRIMARY KEY,
            started_unix_ns INTEGER NOT NULL,
            ended_unix_ns INTEGER,
            outcome TEXT,
            pid INTEGER NOT NULL,
            version TEXT NOT NULL,
            machine TEXT NOT NULL -- JSON
         ) STRICT;
CREATE TABLE records (
            id INTEGER PRIMARY KEY,
            length INTEGER NOT NULL, -- of the JSON text, bytes
            zlib BLOB NOT NULL -- flashwright.run/1; in the sqlite3 shell: sqlar_uncompress(zlib, length)
         ) STRICT;
CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            position INTEGER NOT NULL,
            session INTEGER NOT NULL REFERENCES sessions(id),
            started_unix_ns INTEGER NOT NULL,
            interval_ns INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            ios INTEGER NOT NULL,
            bandwidth_bytes_per_s REAL NOT NULL,
            iops REAL NOT NULL,
            latency_ns_mean REAL NOT NULL,
            latency_ns_p50 INTEGER NOT NULL,
            latency_ns_p99 INTEGER NOT NULL,
            latency_ns_p99_9 INTEGER NOT NULL,
            latency_ns_max INTEGER NOT NULL,
            warnings TEXT NOT NULL, -- codes, separated by spaces
            wall_ns INTEGER NOT NULL, -- from asking for the run until its record was there
            record INTEGER NOT NULL UNIQUE REFERENCES records(id),
            FOREIGN KEY (position, point, pass) REFERENCES plan(position, point, pass)
            , UNIQUE (point, pass), UNIQUE (position)
        ) STRICT;
CREATE TABLE controls (
            id INTEGER PRIMARY KEY,
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            position INTEGER NOT NULL,
            session INTEGER NOT NULL REFERENCES sessions(id),
            started_unix_ns INTEGER NOT NULL,
            interval_ns INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            ios INTEGER NOT NULL,
            bandwidth_bytes_per_s REAL NOT NULL,
            iops REAL NOT NULL,
            latency_ns_mean REAL NOT NULL,
            latency_ns_p50 INTEGER NOT NULL,
            latency_ns_p99 INTEGER NOT NULL,
            latency_ns_p99_9 INTEGER NOT NULL,
            latency_ns_max INTEGER NOT NULL,
            warnings TEXT NOT NULL, -- codes, separated by spaces
            wall_ns INTEGER NOT NULL, -- from asking for the run until its record was there
            record INTEGER NOT NULL UNIQUE REFERENCES records(id),
            FOREIGN KEY (position, point, pass) REFERENCES plan(position, point, pass)
            , UNIQUE (position)
        ) STRICT;
CREATE TABLE voided (
            id INTEGER PRIMARY KEY,
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            position INTEGER NOT NULL,
            session INTEGER NOT NULL REFERENCES sessions(id),
            started_unix_ns INTEGER NOT NULL,
            interval_ns INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            ios INTEGER NOT NULL,
            bandwidth_bytes_per_s REAL NOT NULL,
            iops REAL NOT NULL,
            latency_ns_mean REAL NOT NULL,
            latency_ns_p50 INTEGER NOT NULL,
            latency_ns_p99 INTEGER NOT NULL,
            latency_ns_p99_9 INTEGER NOT NULL,
            latency_ns_max INTEGER NOT NULL,
            warnings TEXT NOT NULL, -- codes, separated by spaces
            wall_ns INTEGER NOT NULL, -- from asking for the run until its record was there
            record INTEGER NOT NULL UNIQUE REFERENCES records(id),
            FOREIGN KEY (position, point, pass) REFERENCES plan(position, point, pass)
            
        ) STRICT;
CREATE TABLE failures (
            id INTEGER PRIMARY KEY,
            session INTEGER NOT NULL REFERENCES sessions(id),
            position INTEGER NOT NULL,
            kind TEXT NOT NULL,
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            at_unix_ns INTEGER NOT NULL,
            error TEXT NOT NULL,
            FOREIGN KEY (position, point, pass) REFERENCES plan(position, point, pass)
         ) STRICT;
CREATE TABLE verdicts (
        record INTEGER PRIMARY KEY REFERENCES records(id),
        word TEXT NOT NULL, -- measure::Limit
        verdict TEXT NOT NULL -- JSON
    ) STRICT;
CREATE TABLE directions (
        record INTEGER NOT NULL REFERENCES records(id),
        direction TEXT NOT NULL CHECK (direction IN ('read', 'write', 'trim')),
        bytes INTEGER NOT NULL,
        ios INTEGER NOT NULL,
        bandwidth_bytes_per_s REAL NOT NULL,
        iops REAL NOT NULL,
        latency_ns_mean REAL NOT NULL,
        latency_ns_p50 INTEGER NOT NULL,
        latency_ns_p99 INTEGER NOT NULL,
        latency_ns_p99_9 INTEGER NOT NULL,
        latency_ns_max INTEGER NOT NULL,
        PRIMARY KEY (record, direction)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE warnings (
        record INTEGER NOT NULL REFERENCES records(id),
        number INTEGER NOT NULL, -- from 1, in the order of the record
        code TEXT NOT NULL,
        severity TEXT NOT NULL, -- note, warning or void
        message TEXT NOT NULL,
        PRIMARY KEY (record, number)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE cpu (
        record INTEGER PRIMARY KEY REFERENCES records(id),
        user_ns INTEGER NOT NULL, -- of the process, in the measured interval
        system_ns INTEGER NOT NULL
    ) STRICT;
CREATE TABLE fates (
        record INTEGER PRIMARY KEY REFERENCES records(id),
        fate TEXT NOT NULL -- as of the last report of a session
    ) STRICT;
CREATE UNIQUE INDEX plan_run ON plan(point, pass) WHERE kind = 'run';
INSERT INTO meta VALUES('control','0');
INSERT INTO meta VALUES('control_every','20');
INSERT INTO meta VALUES('created_unix_ns','1795952535206803296');
INSERT INTO meta VALUES('discard_first','false');
INSERT INTO meta VALUES('machine','{"hostname":"node1","host":{"kernel":"6.1","architecture":"x86_64","cpu_model":"Model 1","cpus":8,"numa_nodes":1,"memory_bytes":17179869184,"governor":null,"virtualization":null,"container":null}}');
INSERT INTO meta VALUES('max_consecutive_failures','3');
INSERT INTO meta VALUES('name','old');
INSERT INTO meta VALUES('order','random');
INSERT INTO meta VALUES('passes','1');
INSERT INTO meta VALUES('plan_digest','8b00a8f46797feb1aa85c699e3ba7176');
INSERT INTO meta VALUES('seed','1');
INSERT INTO meta VALUES('space','[sweep]
protocol = ''dash''
name = ''old''
seed = 1
passes = 1
discard_first = false
[space]
iodepth = [1, 8]');
INSERT INTO meta VALUES('version','0.1.0');
INSERT INTO points VALUES(0,'iodepth=1',NULL,'scratch','{"iodepth":"1"}','{"name":"iodepth=1","rw":"randread","bs":4096,"bssplit":[],"write_bssplit":[],"blockalign":null,"iodepth":1,"iodepth_batch":0,"iodepth_batch_complete_min":1,"numjobs":1,"rwmixread":50,"rw_step":0,"percentage_random":100,"rate_iops":null,"rate":null,"rate_process":"linear","runtime":0.5,"time_based":true,"io_size":null,"loops":1,"number_ios":null,"thinktime":0.0,"thinktime_spin":0.0,"thinktime_blocks":1,"ramp_time":0.0,"request_timeout":120.0,"size":null,"offset":0,"offset_increment":null,"zonemode":"strided","zonesize":null,"zonerange":null,"zoneskip":0,"zonecapacity":null,"read_beyond_wp":false,"max_open_zones":0,"job_max_open_zones":0,"ignore_zone_limits":false,"zone_reset_threshold":0.0,"zone_reset_frequency":0.0,"random_distribution":"random","norandommap":false,"randseed":112615677454369,"verify":null,"verify_interval":null,"verify_pattern":null,"verify_backlog":0,"buffer_pattern":null,"buffer_compress_percentage":0,"dedupe_percentage":0,"dedupe_mode":"repeat","dedupe_working_set_percentage":5,"dedupe_global":false,"direct":true,"ioengine":"auto","hipri":false,"sqthread_poll":false,"fdatasync":0,"fsync":0,"sync":"none","end_fsync":false,"latency_clock":"batch","cpus_allowed":null,"cpus_allowed_policy":"shared","numa_cpu_nodes":null,"pages":"auto"}','{}');
INSERT INTO points VALUES(1,'iodepth=8',NULL,'scratch','{"iodepth":"8"}','{"name":"iodepth=8","rw":"randread","bs":4096,"bssplit":[],"write_bssplit":[],"blockalign":null,"iodepth":8,"iodepth_batch":0,"iodepth_batch_complete_min":1,"numjobs":1,"rwmixread":50,"rw_step":0,"percentage_random":100,"rate_iops":null,"rate":null,"rate_process":"linear","runtime":0.5,"time_based":true,"io_size":null,"loops":1,"number_ios":null,"thinktime":0.0,"thinktime_spin":0.0,"thinktime_blocks":1,"ramp_time":0.0,"request_timeout":120.0,"size":null,"offset":0,"offset_increment":null,"zonemode":"strided","zonesize":null,"zonerange":null,"zoneskip":0,"zonecapacity":null,"read_beyond_wp":false,"max_open_zones":0,"job_max_open_zones":0,"ignore_zone_limits":false,"zone_reset_threshold":0.0,"zone_reset_frequency":0.0,"random_distribution":"random","norandommap":false,"randseed":112615677454369,"verify":null,"verify_interval":null,"verify_pattern":null,"verify_backlog":0,"buffer_pattern":null,"buffer_compress_percentage":0,"dedupe_percentage":0,"dedupe_mode":"repeat","dedupe_working_set_percentage":5,"dedupe_global":false,"direct":true,"ioengine":"auto","hipri":false,"sqthread_poll":false,"fdatasync":0,"fsync":0,"sync":"none","end_fsync":false,"latency_clock":"batch","cpus_allowed":null,"cpus_allowed_policy":"shared","numa_cpu_nodes":null,"pages":"auto"}','{}');
INSERT INTO plan VALUES(0,'control',0,1);
INSERT INTO plan VALUES(1,'run',0,1);
INSERT INTO plan VALUES(2,'run',1,1);
INSERT INTO plan VALUES(3,'control',0,1);
INSERT INTO sessions VALUES(1,1795952535211906213,NULL,NULL,26417,'0.1.0','{"hostname":"node1","host":{"kernel":"6.1","architecture":"x86_64","cpu_model":"Model 1","cpus":8,"numa_nodes":1,"memory_bytes":17179869184,"governor":null,"virtualization":null,"container":null}}');
INSERT INTO records VALUES(1,3037,X'789CB556CD8EE3360C7E9540406FD9AD9DD8891DA0A7B6B72DB6400F3D0C168262CB8936B2E495E46432C1BC7B49FD4D66BAD33D3597503445911F3F52BA11DB1DF9C8C88E0C92D9E3C588C3D17D34B3FAB9244B72D1E62435EBC9EE46141B399809DDF3C91D7FC1CFE6020AC3546F38D82CC9DE925D55B41B94EC248523BB872FE0C508C7E92BD55EEAEEC4A43828B253B394CBE497ECCA2CD33D731D688A371ADAE971921C7C8E42F90D6A1EBF6A3CBDC4A046F1E803DAD5052EA9757CF25E266E3AAE1C3B708A51EB11361468C3C097D0934DC1A0E25EA693D11DB7F09D48A1383398FCAC9C40488A8FF592A008D1590EC73A33730C995AF194DD48EDFD8760F7DCC079F9387714EA949C15776B6A27CCF08DD283179365E344EF761AFE6DE6D679959E01EC72E5F5F791E861B0DC7940824885EA0C1F019964F2A4151F0172C8D73A237A8ED545E5BD1F5C038C87570A7B12016B5C746C629D70D70C255485EEF955AB9E5EC06C60D20252237BA47AE28A7A077E3754937E470D7CD1867B05956214CE66275E6738A6E38EF07FD4B28FA0DC7D1A3C40AABB26BC3C0D682F30CDFDEC845691D2400E28950EE2C85EA2458DE558E7B25C6DCA7AB3DD5675B5DEB44B72E6460C39DBB002701D376726DFA827E640AFDE68F7AC83863BF864F7F330004FDE18462DB600A464E90BA7FD2628D53CF177B4B1A4864F9C3992D5D8E5421D280274BFB1CE1607A9F7984184A0178677EE85E85C1DA02BC0339B9D06BF47311991ADED372C08547ED2F2C5C7D033C7EC55753EC0214B4100E4C1E19270604AFC16F7496847A81FEDB009C030CC8825E9A6D95226A5BE60690256F73A3C5D60DD893D32E3090D8DC828D85005B8E4669C20779B727986BE63E680ED722376E2181AEC04B8FA2041758E69273607DD5F5D242BD451744C8676BDD30F42727B85A134A68DA38659025C47FAE538C2B69E9F45871B716A62FD328F1C10D14EDAE4A635DA31F490A8F68C605DFD14B8F931DFCF929B84ED33C66EC314396AEB8D4EC0333C806C3EE27867A63BC2E4EEDC6CB0B88FCD866EAA00358DA1903FF07F51C602905D13618D9082F3112689B9A6FCCB6DB96D9B4D5B36D5921C34D01E7A2C3781306E865BE18985468C55D4C047E097C96925BEDDC8EC076E3C0382009248ECA1B47700A243F411BF77B9E3A1B67A06EE87B21A0EF3C0D70B8EB34001070C9A9578A4CA27D1D66DBDAAD7F5AA5CB765BB2D2199D4E7DEA22EE22F8E68154A0F79C824872BEA46223055596EB745D3603F597F2FD5EB1C31DA754812FFA1C2369947EF08B00430BD0A2E43AF6ACA62DD86A9EA832D9BB2F6E3A43B711C980F0F4DD1C0255D17AB2FCB8766D556D512BDE2628B9ED2A2293655B46A0B1876492ECB75DADDAEB19051AE564593E4EDAA29A20CE154AB2A2F36553EBB2CB6F52A9F57164D5DBDD8B5F526792BCBA26E57D90E80DA04E75F9E9FE3F3E20EC92242587C0FBE3BE8EE202B5EE07A8594F70F4C18FF47F7E1E1F2F00322BCC72E6800931C87A19256D08F793071B845B1A1E0446803CBF0F9147BA237E29CE4D0C228E5F7CEED3F4E386B094933686E6C51FEE8A8BD08E8A88492FA81C1C8BE6A4307364B173BCDC108937868782964C0E30B32AFB124F4DFF5E0924D3010427CCFF15215A0482F2674C58C82CB2E40DE850BF1EF0FBF7EFAFCD7EFBF7DF8F4F9F39F044796B5FE0624D522BEA8EC42A8C520F1754C1043281AD4239D054585FAF71E2FB8ECB473195F782F9E42AD7D3CBDE8FCA8F5AF173820C20FB19FE199A5FCFC39F76C716176B19FED75D1B68B9F167A58B8235FF8871ECCE57C4D533DD054C0F8B8033B13B9F50F2743ECA9');
INSERT INTO records VALUES(2,3052,X'789CB556CD8EDB36107E1583406F4E2AC9922C19E8A9ED2D450AF4D0C322206889B21853A44252F63AC6BE7B67288A56B6D9E6545F4C8E86F3F3CD3743DE896D7A3E3072209D64B6BF1A71EADD7B33A99F53B225576DCE52B3961CEE44B181839AD02D1F5DFF4B059FCD150486A9D670D0D992A325873CA94B5CD9510A470E4F9FC08A118ED36F4447A99B3393E2A4C8414D526E17BBE450C5353D32D780247925A18D1E46C9C1E620E07CBA256A1A3E6BF49E62508378F6011D8A04B7D43A3E7A2B23370D578E9D38C5A8F5000712D461604BE8D12EC1A060BDA6A3D10DB7F09D48A1383398FCA49C404892F7C596E012A2B31CDC3A33710C995AF1359A91DADB9F833D7203FEA23BD70B755E8C25AB3DB52366F84AE8C10BC9B261A4AB93867F99B8755EA427003BCDBC7C1D89EE3ACB9D07645E52A11AC307406651F9AA151F0072C8D73A235A8ED545E1DA0EEE01C6D337027B1633D6B869D8C81AE16E114AA80A3DF29B562DBD825AC7A405A406F64CF5C815F506FC69A826FD8E18F8A20DF7022AC5209C8D46BCCC704CC7F5F0DF6BD90650569F3A0F906A6E0B5E9E06B41598E6717242AB40692007944ACFCB813DA24589E558E734CDCAB428F7FBBCC87765BD25176E4417B39D7700AEE3E6C2E42BF1C81CC8D52BE99135D070279FEC71EA3AE0C92BC520C51680942C7D70DA1F82524D237F431A4A6AF8C89923518C5D2ED4892240EB8345D438497DC40C0204AD30BC710FA2737582AE00CB6C721AECF66234226ADB2F5810A8FCA8E5C346D732C7EC4D353EC02EAEE605200F06B7840353C2B7704E423B42FD68834D008AF38CD892669C2C6552EA2B9666C66A2D43EF02EB4E6CCF8C27343422A3A04315E0129B7184DCED92CB0BF41D33276C973BB123C7D0E024C0D5CE2BA84EBF9CC4E6A0C79B0B64853A8A86C9B95D57F24E486E6F309486E5E0A0619600D7917E318EF958CB2FA2C1833835B17E91470E8868476D62D31AED185A58A8F68260DDFC14B8FB31DF4E929B05DB178CDDCE53A4D7D62B9D8167E88094EF71FA33D3F430B91B37192CEE7355D2329FA1A62114F207FE6FD250003FBD3DAC0152303EC02431B725FF749FEEEBAAACD32ADF929306DA438FC52610C64D702B7C657323862A6AE023F0CBC4B416BEDDC9E4076EF00141004924F6D072B603A243F401BF37B9E3A1B67A02EECF65351CE681AF17B8B34001070C9A9478A6CA275117759115BB224BF7FBB2280AC873E973AF5124E11746B49A4B0F79C8653D5F5177B2009396795994658E0D05FBACCA77790C19151B6489FF90619F4C83B794EDEB5D92EC6A94C175E865550A8279AEFA70D32A2DFC4069CE1C47E6D3539554704DA779967EDA3E55599DE75BB48B9B7D9227715325105050AB1318787193A6BB68A0DE6139970D8457C5CD3EAB92650351E559FED895F9238634D91759F49B265591AF34EBA28C26D33429EA2C6A620182874F2F2FE1B1B1C235097826DFC37285E30ABEE401DD37A879FBC08BE17F343F3F639E7E448BB7C806FD6016CBF38C5976D09E714E71B854B1BFC025748565F89A0A2DD21A7159D67347E32A3E7FEEFFE1E1A22564CDA0D7B163F9B3A3F62AA0C11698D40F1406F6591BDAB149BAD0780E269A44A7F3C321221E1E94718F35A1FF2E08976C84F930C7F712EE580182E50185A6985170F7CD9837F3FDF8F7BB5F3F7CFCEBF7DFDE7DF8F8F14F8213CC5A7F21927C131E587623D4A693F858268821540DEAB1F882AA02015A8F17DC7DDAB9882F3C1FCF73B17D3CAD68FCE4F58F197010E087D82FF0EA527E1C5D5AB6B932BB394EF6B6A9EBCD4F1BDD6D5CCF37FEDD07633ADEDA547774296078EB819E09E4FA0709C7EFE2');
INSERT INTO runs VALUES(1,0,1,1,1,1795952535213919714,500000000,41177088,10053,82354176.0,20106.0,98276.0,95231,118150,118150,118150,'W-CLOSED-LOOP',1000000000,1);
INSERT INTO runs VALUES(2,1,1,2,1,1795952535217765551,500000000,116465664,28434,232931328.0,56868.0,98276.0,95231,118150,118150,118150,'W-CLOSED-LOOP',1000000000,2);
INSERT INTO verdicts VALUES(1,'drives','{"limit":"drives","evidence":"vda was busy 99 % of the time","at_percent_of_drives":null,"others":[]}');
INSERT INTO verdicts VALUES(2,'drives','{"limit":"drives","evidence":"vda was busy 99 % of the time","at_percent_of_drives":null,"others":[]}');
INSERT INTO directions VALUES(1,'read',41177088,10053,82354176.0,20106.0,98276.0,95231,118150,118150,118150);
INSERT INTO directions VALUES(2,'read',116465664,28434,232931328.0,56868.0,98276.0,95231,118150,118150,118150);
INSERT INTO warnings VALUES(1,1,'W-CLOSED-LOOP','note','4 requests in flight');
INSERT INTO warnings VALUES(2,1,'W-CLOSED-LOOP','note','4 requests in flight');
INSERT INTO cpu VALUES(1,0,0);
INSERT INTO cpu VALUES(2,0,0);
