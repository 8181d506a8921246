"""A PostgreSQL server that is the user's own."""

import os
import pathlib
import pwd
import shutil
import subprocess

# What takes longer has failed.
END_S = 600
PROGRAMS = pathlib.Path("/usr/lib/postgresql/15/bin")


class Cluster:
    """A server of PostgreSQL's own making, by the settings of a managed one that bear on these figures."""

    SETTINGS = {"listen_addresses": "", "autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0", "work_mem": "64MB",
                "maintenance_work_mem": "256MB", "random_page_cost": "1.1", "jit": "off", "max_parallel_workers_per_gather": "0"}

    def __init__(self, folder: pathlib.Path):
        self.folder, self.data = folder, folder / "data"
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(folder, self.user)

    def program(self, name: str, *arguments) -> str:
        user = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run([PROGRAMS / name, *map(str, arguments)], cwd="/", capture_output=True, text=True, check=False, timeout=END_S, **user)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        return done.stdout

    def sql(self, *statements: str) -> str:
        commands = [word for statement in statements for word in ("-c", statement)]
        return self.program("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-d", "postgres", *commands)

    def __enter__(self):
        self.program("initdb", "-D", self.data, "--auth=trust", "--encoding=UTF8", "--locale=C")
        settings = " ".join(f"-c {name}='{value}'" for name, value in {**self.SETTINGS, "unix_socket_directories": self.folder}.items())
        subprocess.run([PROGRAMS / "pg_ctl", "--version"], check=True, capture_output=True)
        # The server keeps the descriptors that it is given, so its output goes to a file.
        self.program("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-o", settings, "start")
        return self

    def __exit__(self, *_):
        self.program("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")
