BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
CREATE TABLE audit (
	seq INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	actor TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	action VARCHAR(64) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	subject TEXT NOT NULL, 
	"before" TEXT NOT NULL, 
	"after" TEXT NOT NULL, 
	result TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "audit" VALUES(1,'2026-11-21T12:00:00.000000+00:00','ann','cli','policy.set','h1','h1','','','done','req-1','','8674aab71c4721fe096af8015425aac7dfd7f7270ddb12720834188ae85f1830');
INSERT INTO "audit" VALUES(2,'2026-11-21T12:00:00.000000+00:00','ann','cli','run.apply','h1','run-1 of plan-62f31158f043e9c9','','','done','req-1','8674aab71c4721fe096af8015425aac7dfd7f7270ddb12720834188ae85f1830','18c8284ec8d5fab9371de281e5e660d96bf67e49a3b21808978d38aa39dd14f9');
INSERT INTO "audit" VALUES(3,'2026-11-21T12:00:00.000000+00:00','ann','cli','guest.exempt','h1','g2','','','done','req-1','18c8284ec8d5fab9371de281e5e660d96bf67e49a3b21808978d38aa39dd14f9','b06674ddaae64ddd0ac705a73c72e09841153fb473ff17b1ee76033d63dfe21d');
CREATE TABLE entries (
	run VARCHAR(64) NOT NULL, 
	seq INTEGER NOT NULL, 
	change TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	error TEXT NOT NULL, 
	found TEXT NOT NULL, 
	definition TEXT NOT NULL, memory TEXT DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (run, seq), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
INSERT INTO "entries" VALUES('run-1',1,'{"target":{"kind":"process","owner":"500","part":5,"name":"daemon"},"before":[{"tid":500,"started":5,"cpus":"0-5"}],"after":"0","reason":"busy, 50.0 % of one CPU, above 2 %: off the guests'' CPUs","states":["",""]}','done','2026-11-21T12:00:00.000000+00:00','','[]','','[]');
INSERT INTO "entries" VALUES('run-1',2,'{"target":{"kind":"process","owner":"600","part":5,"name":"ovs-vswitchd"},"before":[{"tid":600,"started":5,"cpus":"0-5"}],"after":"0","reason":"busy, 40.0 % of one CPU, above 2 %: off the guests'' CPUs","states":["",""]}','done','2026-11-21T12:00:00.000000+00:00','','[]','','[]');
INSERT INTO "entries" VALUES('run-1',3,'{"target":{"kind":"emulator","owner":"00000000-0000-4000-8000-000000000001","part":null,"name":"g1"},"before":[{"tid":11000,"started":7,"cpus":"0-5"},{"tid":11001,"started":7,"cpus":"0-5"}],"after":"1","reason":"QEMU''s own threads, off the vCPUs'' CPUs","states":["",""]}','done','2026-11-21T12:00:00.000000+00:00','','[]','','[]');
INSERT INTO "entries" VALUES('run-1',4,'{"target":{"kind":"helper","owner":"00000000-0000-4000-8000-000000000001","part":11600,"name":"g1"},"before":[{"tid":11600,"started":7,"cpus":"0-5"}],"after":"1","reason":"a kernel thread that works for the guest''s devices: beside its emulator","states":["",""]}','done','2026-11-21T12:00:00.000000+00:00','','[]','','[]');
INSERT INTO "entries" VALUES('run-1',7,'{"target":{"kind":"memory","owner":"00000000-0000-4000-8000-000000000001","part":7,"name":"g1"},"before":{"0":1024,"1":512},"node":0,"numatune":"0","reason":"its vCPUs are there"}','done','2026-11-21T12:00:00.000000+00:00','','[]','','[]');
CREATE TABLE plans (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR(64) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	strategy VARCHAR(255) NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	changes INTEGER NOT NULL, 
	unplaced INTEGER NOT NULL, 
	blocked TEXT NOT NULL, 
	snapshot VARCHAR(64) NOT NULL, 
	body TEXT NOT NULL, 
	UNIQUE (id), 
	FOREIGN KEY(snapshot) REFERENCES snapshots (id)
);
INSERT INTO "plans" VALUES(1,'plan-62f31158f043e9c9','h1','numa-local','2026-11-21T12:00:00.000000+00:00',6,0,'','846ebc0f1c660733e8d7d7ecee2514e3cd2af334553d852b399fe2655b787031','{"id":"plan-62f31158f043e9c9","host":"h1","request":{"strategy":"numa-local","guests":[],"processes":[],"housekeeping":"auto","emulator":"auto","busy_threshold":2.0,"smt":"prefer","isolation":"boot","exempt_guests":["g9"],"exempt_processes":["backup"],"nova_emulators":false,"repack":true},"basis":{"snapshot":"846ebc0f1c660733e8d7d7ecee2514e3cd2af334553d852b399fe2655b787031","taken_at":"2026-11-21T12:00:00Z","fingerprint":"d218239660c56b21ca137b299187cdee49cbd8f3975d7bb33034d91727cf1423"},"roles":{"housekeeping":"0","emulator":"1","vcpu":"2-3,5","notes":[]},"wanted":[{"target":{"kind":"process","owner":"500","part":5,"name":"daemon"},"cpus":"0","reason":"busy, 50.0 % of one CPU, above 2 %: off the guests'' CPUs","state":""},{"target":{"kind":"process","owner":"600","part":5,"name":"ovs-vswitchd"},"cpus":"0","reason":"busy, 40.0 % of one CPU, above 2 %: off the guests'' CPUs","state":""},{"target":{"kind":"emulator","owner":"00000000-0000-4000-8000-000000000001","part":null,"name":"g1"},"cpus":"1","reason":"QEMU''s own threads, off the vCPUs'' CPUs","state":""},{"target":{"kind":"helper","owner":"00000000-0000-4000-8000-000000000001","part":11600,"name":"g1"},"cpus":"1","reason":"a kernel thread that works for the guest''s devices: beside its emulator","state":""},{"target":{"kind":"vcpu","owner":"00000000-0000-4000-8000-000000000001","part":0,"name":"g1"},"cpus":"2-3,5","reason":"node 0 has 100% of the guest''s memory","state":""},{"target":{"kind":"vcpu","owner":"00000000-0000-4000-8000-000000000001","part":1,"name":"g1"},"cpus":"2-3,5","reason":"node 0 has 100% of the guest''s memory","state":""}],"changes":[{"target":{"kind":"process","owner":"500","part":5,"name":"daemon"},"before":[{"tid":500,"started":5,"cpus":"0-5"}],"after":"0","reason":"busy, 50.0 % of one CPU, above 2 %: off the guests'' CPUs","states":["",""]},{"target":{"kind":"process","owner":"600","part":5,"name":"ovs-vswitchd"},"before":[{"tid":600,"started":5,"cpus":"0-5"}],"after":"0","reason":"busy, 40.0 % of one CPU, above 2 %: off the guests'' CPUs","states":["",""]},{"target":{"kind":"emulator","owner":"00000000-0000-4000-8000-000000000001","part":null,"name":"g1"},"before":[{"tid":11000,"started":7,"cpus":"0-5"},{"tid":11001,"started":7,"cpus":"0-5"}],"after":"1","reason":"QEMU''s own threads, off the vCPUs'' CPUs","states":["",""]},{"target":{"kind":"helper","owner":"00000000-0000-4000-8000-000000000001","part":11600,"name":"g1"},"before":[{"tid":11600,"started":7,"cpus":"0-5"}],"after":"1","reason":"a kernel thread that works for the guest''s devices: beside its emulator","states":["",""]},{"target":{"kind":"vcpu","owner":"00000000-0000-4000-8000-000000000001","part":0,"name":"g1"},"before":[{"tid":11010,"started":7,"cpus":"0-5"}],"after":"2-3,5","reason":"node 0 has 100% of the guest''s memory","states":["",""]},{"target":{"kind":"vcpu","owner":"00000000-0000-4000-8000-000000000001","part":1,"name":"g1"},"before":[{"tid":11011,"started":7,"cpus":"0-5"}],"after":"2-3,5","reason":"node 0 has 100% of the guest''s memory","states":["",""]}],"unplaced":[],"left_alone":[{"name":"guest g2","why":"its metadata says to leave its CPUs alone (pin-off)"},{"name":"process ovs-vswitchd (600) thread 601","why":"20.0 % of one CPU; somebody gave it CPUs 4 on purpose; name it among those to move to have it moved"},{"name":"process backup (700)","why":"30.0 % of one CPU; it is exempt"},{"name":"process pinner (800)","why":"20.0 % of one CPU; pinner itself"}],"warnings":[],"score_before":{"total":2.7,"parts":{"vcpu_vs_host":0.6,"vcpu_vs_emulator":1.5,"emulator_vs_host":0.6,"overcommit":0.0,"remote_nodes":0.0}},"score_after":{"total":1.375,"parts":{"vcpu_vs_host":0.3,"vcpu_vs_emulator":0.833333,"emulator_vs_host":0.241667,"overcommit":0.0,"remote_nodes":0.0}},"isolation":null,"blocked":"","memory":[{"target":{"kind":"memory","owner":"00000000-0000-4000-8000-000000000001","part":7,"name":"g1"},"per_node":{"0":2097152},"remote_now_kib":0,"remote_kib":0,"home":null},{"target":{"kind":"memory","owner":"00000000-0000-4000-8000-000000000002","part":7,"name":"g2"},"per_node":{"0":2097152},"remote_now_kib":0,"remote_kib":0,"home":null}],"repack":{"guests":0,"threads":0,"gain":0.0,"taken":false}}');
CREATE TABLE policies (
	host VARCHAR(255) NOT NULL, 
	set_at VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (host)
);
INSERT INTO "policies" VALUES('h1','2026-11-21T12:00:00.000000+00:00','{"request":{"strategy":"numa-local","guests":[],"processes":[],"housekeeping":"auto","emulator":"auto","busy_threshold":2.0,"smt":"prefer","isolation":"boot","exempt_guests":["g9"],"exempt_processes":["backup"],"nova_emulators":false,"repack":false},"mode":"enforce"}');
CREATE TABLE runs (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	"plan" VARCHAR(64) NOT NULL, 
	actor TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), 
	persist BOOLEAN NOT NULL, 
	undoes VARCHAR(64) NOT NULL, 
	error TEXT NOT NULL, migrate_memory BOOLEAN DEFAULT 0 NOT NULL, recovered TEXT DEFAULT '' NOT NULL, 
	UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'run-1','apply','h1','plan-62f31158f043e9c9','ann','cli','running','2026-11-21T12:00:00.000000+00:00',NULL,0,'','',0,'');
CREATE TABLE snapshots (
	id VARCHAR(64) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	taken_at VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "snapshots" VALUES('846ebc0f1c660733e8d7d7ecee2514e3cd2af334553d852b399fe2655b787031','h1','2026-11-21T12:00:00.000000+00:00','{"host":"h1","taken_at":"2026-11-21T12:00:00Z","sample_seconds":5.0,"topology":{"cpus":[{"id":0,"node":0,"socket":0,"die":null,"core":0,"l3":null,"siblings":"0","online":true,"isolated":false,"nohz_full":false,"governor":null},{"id":1,"node":0,"socket":0,"die":null,"core":1,"l3":null,"siblings":"1","online":true,"isolated":false,"nohz_full":false,"governor":null},{"id":2,"node":0,"socket":0,"die":null,"core":2,"l3":null,"siblings":"2","online":true,"isolated":false,"nohz_full":false,"governor":null},{"id":3,"node":0,"socket":0,"die":null,"core":3,"l3":null,"siblings":"3","online":true,"isolated":false,"nohz_full":false,"governor":null},{"id":4,"node":0,"socket":0,"die":null,"core":4,"l3":null,"siblings":"4","online":true,"isolated":false,"nohz_full":false,"governor":null},{"id":5,"node":0,"socket":0,"die":null,"core":5,"l3":null,"siblings":"5","online":true,"isolated":false,"nohz_full":false,"governor":null}],"nodes":[{"id":0,"cpus":"0-5","memory_kib":67108864,"free_kib":67108864,"distances":{"0":10},"hugepages":[]}],"kernel":{"release":"6.12.0","command_line":"BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet","cgroup":"v2","partitions":true,"unbound":""},"l3_domains":[],"devices":[]},"guests":[{"uuid":"00000000-0000-4000-8000-000000000001","name":"g1","state":"running","pid":11000,"vcpus":[{"id":0,"thread":{"tid":11010,"started":7,"name":"CPU 0/KVM","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""},"pin":"0-5"},{"id":1,"thread":{"tid":11011,"started":7,"name":"CPU 1/KVM","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""},"pin":"0-5"}],"emulator":{"pin":"0-5","threads":[{"tid":11000,"started":7,"name":"qemu","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""},{"tid":11001,"started":7,"name":"worker","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""}],"policy":""},"iothreads":[],"helpers":[{"tid":11600,"started":7,"name":"vhost-11000","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":"guest"}],"memory_kib":2097152,"memory_per_node":{"0":2097152},"taps":[],"pci":[],"persistent":false,"nova":{"instance":"vm-1","project":"p","user":"u","flavor":"m1.small","extra_specs":{"hw:cpu_policy":"shared","hold":"narrowed","exempt":"yes"}},"dedicated":false,"exempt":false,"leaving":false,"cgroups":[]},{"uuid":"00000000-0000-4000-8000-000000000002","name":"g2","state":"running","pid":12000,"vcpus":[{"id":0,"thread":{"tid":12010,"started":7,"name":"CPU 0/KVM","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""},"pin":"0-5"}],"emulator":{"pin":"0-5","threads":[{"tid":12000,"started":7,"name":"qemu","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""},{"tid":12001,"started":7,"name":"worker","affinity":"0-5","load":0.0,"run_ns":null,"delay_ns":null,"hold":""}],"policy":""},"iothreads":[],"helpers":[],"memory_kib":2097152,"memory_per_node":{"0":2097152},"taps":[],"pci":[],"persistent":false,"nova":null,"dedicated":false,"exempt":true,"leaving":false,"cgroups":[]}],"processes":[{"pid":500,"started":5,"name":"daemon","command":"/usr/bin/daemon","unit":"daemon.service","kernel":false,"load":50.0,"threads":[{"tid":500,"started":5,"name":"daemon","affinity":"0-5","load":50.0,"run_ns":null,"delay_ns":null,"hold":""}],"hold":""},{"pid":600,"started":5,"name":"ovs-vswitchd","command":"/usr/bin/ovs-vswitchd","unit":"ovs-vswitchd.service","kernel":false,"load":40.0,"threads":[{"tid":600,"started":5,"name":"ovs-vswitchd","affinity":"0-5","load":20.0,"run_ns":null,"delay_ns":null,"hold":""},{"tid":601,"started":5,"name":"ovs-vswitchd","affinity":"4","load":20.0,"run_ns":null,"delay_ns":null,"hold":"narrowed"}],"hold":""},{"pid":700,"started":5,"name":"backup","command":"/usr/bin/backup","unit":"backup.service","kernel":false,"load":30.0,"threads":[{"tid":700,"started":5,"name":"backup","affinity":"0-5","load":30.0,"run_ns":null,"delay_ns":null,"hold":""}],"hold":""},{"pid":800,"started":5,"name":"pinner","command":"/usr/bin/pinner","unit":"pinner.service","kernel":false,"load":20.0,"threads":[{"tid":800,"started":5,"name":"pinner","affinity":"0-5","load":20.0,"run_ns":null,"delay_ns":null,"hold":""}],"hold":"pinner"}],"baseline":"0-5","dedicated":"","shared":"","nova":null,"placed":[],"warnings":[]}');
CREATE TABLE standings (
	host VARCHAR(255) NOT NULL, 
	stored_at VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (host)
);
INSERT INTO "standings" VALUES('h1','2026-11-21T12:00:00.000000+00:00','{"host":"h1","plan":"plan-e488c12fc06c7f85","at":"2026-11-21T12:00:00Z","request":{"strategy":"numa-local","guests":[],"processes":[],"housekeeping":"auto","emulator":"auto","busy_threshold":2.0,"smt":"prefer","isolation":"boot","exempt_guests":["g9"],"exempt_processes":["backup"],"nova_emulators":false,"repack":false},"roles":{"housekeeping":"0","emulator":"1","vcpu":"2-3,5","notes":[]},"placed":[{"target":{"kind":"process","owner":"500","part":5,"name":"daemon"},"cpus":"0","threads":[[500,5]],"unit":"daemon.service","command":""},{"target":{"kind":"process","owner":"600","part":5,"name":"ovs-vswitchd"},"cpus":"0","threads":[[600,5]],"unit":"ovs-vswitchd.service","command":""},{"target":{"kind":"emulator","owner":"00000000-0000-4000-8000-000000000001","part":null,"name":"g1"},"cpus":"1","threads":[[11000,7],[11001,7]],"unit":"","command":""},{"target":{"kind":"helper","owner":"00000000-0000-4000-8000-000000000001","part":11600,"name":"g1"},"cpus":"1","threads":[[11600,7]],"unit":"","command":""},{"target":{"kind":"vcpu","owner":"00000000-0000-4000-8000-000000000001","part":0,"name":"g1"},"cpus":"2-3,5","threads":[[11010,7]],"unit":"","command":""},{"target":{"kind":"vcpu","owner":"00000000-0000-4000-8000-000000000001","part":1,"name":"g1"},"cpus":"2-3,5","threads":[[11011,7]],"unit":"","command":""}],"since":5}');
CREATE TABLE told (
	guest VARCHAR(36) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	nova TEXT NOT NULL, 
	leaving_until VARCHAR(32), 
	PRIMARY KEY (guest)
);
INSERT INTO "told" VALUES('00000000-0000-4000-8000-000000000001','h1','2026-11-21T12:00:00.000000+00:00','{"instance":"vm-1","project":"p","user":"u","flavor":"m1.small","extra_specs":{"hw:cpu_policy":"shared","hold":"narrowed","exempt":"yes"}}','2026-11-21T13:00:00.000000+00:00');
CREATE INDEX plans_of_host ON plans (host, seq);
CREATE INDEX runs_of_host ON runs (host, seq);
CREATE INDEX runs_in_state ON runs (state);
CREATE INDEX audit_of_host ON audit (host, seq);
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_refuses_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
CREATE TRIGGER audit_refuses_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
CREATE INDEX told_of_host ON told (host);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('plans',1);
INSERT INTO "sqlite_sequence" VALUES('runs',1);
COMMIT;
