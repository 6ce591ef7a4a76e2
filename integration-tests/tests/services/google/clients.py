"""Asks a stand-in for Google's services by Google's own clients, and prints what they see.

Usage: clients.py HOST:PORT. Ends with status 77 where a client is not installed.
"""

import json
import os
import sys

ADDRESS = sys.argv[1]
URL = f"http://{ADDRESS}"
os.environ["GCE_METADATA_HOST"] = os.environ["GCE_METADATA_IP"] = ADDRESS
os.environ["NO_GCE_CHECK"] = "false"
os.environ["CLOUDSDK_CONFIG"] = os.devnull
os.environ.pop("GOOGLE_APPLICATION_CREDENTIALS", None)

try:
    import google.auth
    import google.auth.transport.requests
    from google.api_core.client_options import ClientOptions
    from googleapiclient import discovery
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)


def api(name, version, endpoint):
    options = ClientOptions(api_endpoint=endpoint)
    return discovery.build(
        name, version, credentials=credentials, static_discovery=True, client_options=options
    )


credentials, project = google.auth.default(
    scopes=["https://www.googleapis.com/auth/cloud-platform"]
)
credentials.refresh(google.auth.transport.requests.Request())
assert project == "p", project

compute = api("compute", "v1", f"{URL}/compute/v1/")
groups = compute.instanceGroups()
request = groups.listInstances(
    project=project,
    zone="z",
    instanceGroup="g",
    orderBy="name",
    body={"instanceState": "RUNNING"},
)
machines = {}
while request is not None:
    page = request.execute()
    for item in page.get("items", []):
        name = item["instance"].rsplit("/", 1)[1]
        machine = compute.instances().get(project=project, zone="z", instance=name).execute()
        machines[name] = machine["networkInterfaces"][0]["networkIP"]
    request = groups.listInstances_next(request, page)

workers = None
for version in ("v1", "v2"):
    nodes = api("tpu", version, URL).projects().locations().nodes()
    node = nodes.get(name=f"projects/{project}/locations/z/nodes/t").execute()
    endpoints = node["networkEndpoints"]
    workers = [f"{endpoint['ipAddress']}:{endpoint['port']}" for endpoint in endpoints]

json.dump({"machines": machines, "workers": workers}, sys.stdout)
