"""A hub for two users with one password, below J2C_HUB_HOME; ports come from the test."""

import os
import sys

c = get_config()  # noqa: F821
home = os.environ["J2C_HUB_HOME"]
port, hub_port, api_port = os.environ["J2C_HUB_PORTS"].split(",")
c.JupyterHub.bind_url = f"http://127.0.0.1:{port}/base/"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{hub_port}/base/"
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.cookie_secret = os.urandom(32)
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{api_port}"
c.ConfigurableHTTPProxy.auth_token = "proxy-token"
c.ConfigurableHTTPProxy.command = [os.environ["J2C_PROXY"]]
c.ConfigurableHTTPProxy.pid_file = f"{home}/proxy.pid"
c.SharedPasswordAuthenticator.user_password = "a shared password"
c.JupyterHub.authenticator_class = "shared-password"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = home + "/homes/{username}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = [
    "--allow-root",
    f"--LabApp.user_settings_dir={home}/settings",
    "--LabApp.expose_app_in_browser=True",
]
c.Spawner.ip = "127.0.0.1"
c.Spawner.start_timeout = 60
# One store for all, as on a cluster: the hub's user name tells the runs apart.
c.Spawner.environment = {"J2C_STORE": f"{home}/store", "JUPYTER_PATH": f"{home}/jupyter"}
c.JupyterHub.services = [{"name": "tests", "api_token": "a-token-of-the-tests"}]
c.JupyterHub.load_roles = [
    {
        "name": "for-tests",
        "services": ["tests"],
        "scopes": ["admin:users", "admin:servers", "tokens"],
    }
]
