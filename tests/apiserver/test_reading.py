"""Gets and lists: pages, selectors, versions, forms (local-cluster 1.4, 1.10, 2.12)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.http import CONFIG_MAPS, PODS, Http, config_map, pod
from tests.apiserver_process import ApiServerProcess

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.fixture(scope="module")
def filled(shared_apiserver: ApiServerProcess) -> Iterator[ApiServerProcess]:
    """25 ConfigMaps in a namespace of their own, with labels a=0..4 and every third without b."""
    http = Http(shared_apiserver)
    http.post("/api/v1/namespaces", {"metadata": {"name": "many"}})
    for number in range(25):
        labels = {"a": str(number % 5), **({"b": "x"} if number % 3 else {})}
        assert (
            http.post(
                "/api/v1/namespaces/many/configmaps",
                config_map(f"cm-{number:02}", metadata={"labels": labels}),
            ).status
            == 201
        )
    yield shared_apiserver


MANY = "/api/v1/namespaces/many/configmaps"


@pytest.mark.scenario("local-cluster", 62)
def test_pages_of_one_version(filled: ApiServerProcess) -> None:
    http = Http(filled)
    first = http.get(f"{MANY}?limit=10")
    assert len(first.names) == 10
    assert first.tree["metadata"]["remainingItemCount"] == 15
    http.post(MANY, config_map("cm-zz"))
    http.delete(f"{MANY}/cm-24")
    second = http.get(f"{MANY}?limit=10&continue={first.tree['metadata']['continue']}")
    assert (second.version, second.tree["metadata"]["remainingItemCount"]) == (first.version, 5)
    third = http.get(f"{MANY}?limit=10&continue={second.tree['metadata']['continue']}")
    assert third.version == first.version
    assert "remainingItemCount" not in third.tree["metadata"]
    assert "continue" not in third.tree["metadata"]
    assert first.names + second.names + third.names == [f"cm-{number:02}" for number in range(25)]
    http.delete(f"{MANY}/cm-zz")
    http.post(MANY, config_map("cm-24", metadata={"labels": {"a": "4"}}))


@pytest.mark.scenario("local-cluster", 63)
def test_tampered_tokens(http: Http) -> None:
    answer = http.get(f"{CONFIG_MAPS}?limit=1&continue=eyJ4Ijox")
    assert answer.status == 400
    assert "invalid continue token" in answer.message
    first = http.get("/api/v1/namespaces?limit=1").tree["metadata"]["continue"]
    answer = http.get(f"/api/v1/namespaces?limit=1&resourceVersion=5&continue={first}")
    assert (answer.status, answer.message) == (
        400,
        "specifying resource version is not allowed when using continue",
    )


@pytest.mark.scenario("local-cluster", 64)
@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ("a in (1,2),b", {1, 2, 7, 11, 16, 17, 22}),
        ("a notin (0,1,2,3)", {4, 9, 14, 19, 24}),
        ("!b,a=0", {0, 15}),
        ("a!=0,a!=1,a!=2,a!=3", {4, 9, 14, 19, 24}),
        ("a>3", {4, 9, 14, 19, 24}),
        ("a<1,b=x", {5, 10, 20}),
        ("a==4 , b", {4, 14, 19}),
    ],
)
def test_label_selectors(filled: ApiServerProcess, selector: str, numbers: set[int]) -> None:
    from urllib.parse import quote

    names = Http(filled).get(f"{MANY}?labelSelector={quote(selector)}").names
    assert {int(name[3:]) for name in names} == {
        n for n in numbers if not (n == 24 and "b" in selector)
    }


@pytest.mark.parametrize("selector", ["a in", "a=(", "=b", "a in (b", "a,", "-a=b", "a=b=c", "a>x"])
def test_bad_label_selectors(http: Http, selector: str) -> None:
    from urllib.parse import quote

    assert http.get(f"{CONFIG_MAPS}?labelSelector={quote(selector)}").status == 400


@pytest.mark.scenario("local-cluster", 65)
def test_field_selectors(http: Http) -> None:
    http.post(PODS, pod("free"))
    http.post(PODS, pod("placed"))
    http.post(
        f"{PODS}/placed/binding",
        {"metadata": {"name": "placed"}, "target": {"kind": "Node", "name": "n3"}},
    )
    assert http.get(f"{PODS}?fieldSelector=spec.nodeName%3D").names == ["free"]
    assert http.get(f"{PODS}?fieldSelector=spec.nodeName%3Dn3").names == ["placed"]
    assert http.get(f"{PODS}?fieldSelector=spec.nodeName!%3Dn3,metadata.name=free").names == [
        "free"
    ]
    assert http.get(f"{PODS}?fieldSelector=status.phase%3DPending").names == ["free", "placed"]
    answer = http.get(f"{PODS}?fieldSelector=spec.foo%3Dx")
    assert (answer.status, answer.message) == (400, "field label not supported: spec.foo")
    answer = http.get(f"{CONFIG_MAPS}?fieldSelector=data.x%3Dx")
    assert (
        answer.message
        == '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


@pytest.mark.scenario("local-cluster", 66)
def test_versions_of_a_list(http: Http) -> None:
    assert http.get(f"{CONFIG_MAPS}?resourceVersion=0").names == http.get(CONFIG_MAPS).names
    answer = http.get(f"{CONFIG_MAPS}?resourceVersion=99999999")
    assert answer.status == 504
    assert answer.tree["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert http.get(f"{CONFIG_MAPS}?resourceVersion=x").status == 400
    assert http.get(f"{CONFIG_MAPS}?resourceVersionMatch=Exact").status == 422


def test_an_exact_version_is_what_it_was(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("then", data={"a": "1"}))
    then = http.get(CONFIG_MAPS)
    http.patch(f"{CONFIG_MAPS}/then", {"data": {"a": "2"}})
    http.post(CONFIG_MAPS, config_map("afterwards"))
    again = http.get(f"{CONFIG_MAPS}?resourceVersion={then.version}&resourceVersionMatch=Exact")
    assert again.tree == then.tree


@pytest.mark.scenario("local-cluster", 16)
def test_tables(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("tabled"))
    table = http.get(CONFIG_MAPS, Accept=TABLE).tree
    assert table["kind"] == "Table"
    assert table["columnDefinitions"][0]["name"] == "Name"
    row = next(row for row in table["rows"] if row["cells"][0] == "tabled")
    assert row["object"]["kind"] == "PartialObjectMetadata"
    whole = http.get(f"{CONFIG_MAPS}/tabled?includeObject=Object", Accept=TABLE).tree
    assert whole["rows"][0]["object"]["kind"] == "ConfigMap"


@pytest.mark.scenario("local-cluster", 17)
def test_partial_metadata(http: Http) -> None:
    http.post(PODS, pod("partial"))
    tree = http.get(f"{PODS}/partial", Accept=PARTIAL).tree
    assert (tree["kind"], tree["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert "spec" not in tree
    listed = http.get(PODS, Accept=PARTIAL.replace("Metadata;", "MetadataList;")).tree
    assert listed["kind"] == "PartialObjectMetadataList"


@pytest.mark.scenario("local-cluster", 7)
def test_media_types_that_are_not_spoken(http: Http) -> None:
    assert http.get(CONFIG_MAPS, Accept="text/html").status == 406
    answer = http.post(CONFIG_MAPS, b"a,b", "text/csv")
    assert answer.status == 415
    assert "accepted media types include: application/json" in answer.message


@pytest.mark.scenario("local-cluster", 8)
def test_json_is_answered_to_those_who_prefer_protobuf(http: Http) -> None:
    answer = http.get(CONFIG_MAPS, Accept="application/vnd.kubernetes.protobuf,application/json")
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.scenario("local-cluster", 5)
def test_paths_that_are_not_there(http: Http) -> None:
    answer = http.get("/apis/nope")
    assert (answer.status, answer.headers["content-type"].split(";")[0]) == (404, "text/plain")
    answer = http.get("/api/v1/nope")
    assert (answer.status, answer.tree["reason"]) == (404, "NotFound")


@pytest.mark.scenario("local-cluster", 6)
def test_methods_that_mean_nothing(http: Http) -> None:
    for method, path in (
        ("PATCH", CONFIG_MAPS),
        ("POST", f"{CONFIG_MAPS}/x"),
        ("PUT", CONFIG_MAPS),
        ("OPTIONS", CONFIG_MAPS),
    ):
        answer = http.request(method, path, {})
        assert (answer.status, answer.tree["reason"]) == (405, "MethodNotAllowed"), (method, path)


def test_trailing_slashes(http: Http) -> None:
    for path in ("/api/", "/apis/", "/version/", f"{CONFIG_MAPS}/"):
        assert http.get(path).status == 200, path


@pytest.mark.scenario("local-cluster", 3)
def test_aggregated_discovery(http: Http) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = http.get(
        "/apis", Accept=f"{accept},{accept.replace('v2', 'v2beta1')},application/json"
    )
    assert answer.headers["content-type"] == accept
    apps = next(item for item in answer.tree["items"] if item["metadata"]["name"] == "apps")
    deployments = next(
        r for r in apps["versions"][0]["resources"] if r["resource"] == "deployments"
    )
    assert deployments["shortNames"] == ["deploy"]
    assert http.get("/apis", Accept=accept, If_None_Match=answer.headers["etag"]).status == 304
    assert (
        "groups"
        in http.get("/apis", Accept=f"{accept.replace('v2', 'v2beta1')},application/json").tree
    )


@pytest.mark.scenario("local-cluster", 4)
def test_legacy_discovery(http: Http) -> None:
    assert http.get("/api").tree["versions"] == ["v1"]
    groups = [group["name"] for group in http.get("/apis").tree["groups"]]
    assert "batch" in groups
    resources = {resource["name"]: resource for resource in http.get("/api/v1").tree["resources"]}
    assert (resources["pods/eviction"]["group"], resources["pods/eviction"]["version"]) == (
        "policy",
        "v1",
    )
    assert resources["pods"]["shortNames"] == ["po"]


@pytest.mark.scenario("local-cluster", 1)
def test_version(http: Http) -> None:
    tree = http.get("/version").tree
    assert tree["major"].isdigit()
    assert tree["minor"].isdigit()
    assert tree["gitVersion"].startswith("v1.36.0")


@pytest.mark.scenario("local-cluster", 2)
def test_health(shared_apiserver: ApiServerProcess, http: Http) -> None:
    connection = shared_apiserver.https(certificate=False)
    for path in ("/healthz", "/livez", "/readyz"):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")
    text = http.get("/livez?verbose").body.decode()
    assert "[+]ping ok" in text
    assert text.endswith("livez check passed\n")
    assert http.get("/livez/ping").status == 200
    assert http.get("/livez/nope").status == 404


@pytest.mark.parametrize("option", ["limit", "timeoutSeconds", "resourceVersion"])
def test_a_number_without_end_is_out_of_range(
    shared_apiserver: ApiServerProcess, option: str
) -> None:
    """Python refuses to read more than 4,300 digits, which was an internal error."""
    query = f"watch=true&{option}" if option == "timeoutSeconds" else option
    refused = Http(shared_apiserver).get(f"{CONFIG_MAPS}?{query}={'9' * 5000}")
    assert refused.status == 400 and "value out of range" in refused.tree["message"]
