"""What an image name means without images."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.local.kubelet.pods.images import ImageError, Images, TableError, parse


@pytest.mark.parametrize(
    ("reference", "repository", "tag"),
    [
        ("nginx", "nginx", "latest"), ("docker.io/library/nginx:1.29.3-alpine", "nginx", "1.29.3-alpine"),
        ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause", "3.9"), ("localhost:5000/a/b", "localhost:5000/a/b", "latest"),
        ("busybox@sha256:" + "0" * 64, "busybox", ""), ("volcanosh/example-mpi:0.0.3", "volcanosh/example-mpi", "0.0.3"),
    ],
)  # fmt: skip
def test_references(reference: str, repository: str, tag: str) -> None:
    image = parse(reference)
    assert (image.repository, image.tag) == (repository, tag)


@pytest.mark.parametrize("reference", ["", "Nginx", "a//b", "a:b:c", "nginx:bad tag"])
def test_what_is_no_reference(reference: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse(reference)
    assert caught.value.reason == "InvalidImageName"


def test_a_command_needs_no_row() -> None:
    assert Images().argv("whatever/it:is", ["train"], ["--fast"]) == ["train", "--fast"]


def test_stand_ins() -> None:
    images = Images()
    assert images.argv("busybox:1.36", [], []) == ["true"]
    assert images.argv("busybox", [], ["echo", "hi"]) == ["echo", "hi"]
    assert images.argv("nginx", [], [], 8080)[-1] == "8080"
    assert images.argv("registry.k8s.io/pause:3.9", [], [])[0] == "sh"


def test_the_error_for_an_unknown_image_without_a_command_says_what_helps() -> None:
    with pytest.raises(
        ImageError, match="give the container a command, or add the image to the table"
    ) as caught:
        Images().argv("train_script", [], [])
    assert caught.value.reason == "ErrImagePull"
    assert (
        'failed to resolve reference "docker.io/library/train_script:latest"'
        in caught.value.message
    )


def test_a_refused_tag_is_missing_even_with_a_command() -> None:
    with pytest.raises(ImageError, match="not found"):
        Images().argv("nginx:alpine-nonexist", ["sleep", "1"], [])


def test_a_users_rows_come_first(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    rows = [
        'image: "example.com/team/*", entrypoint: [/opt/serve], command: [--port, "80"]',
        "image: nginx, command: [my-nginx]",
    ]
    file.write_text("".join(f"- {{{row}}}\n" for row in rows))
    images = Images.load(str(file))
    assert images.argv("example.com/team/server:2", [], []) == ["/opt/serve", "--port", "80"]
    assert images.argv("example.com/team/server:2", [], ["-x"]) == ["/opt/serve", "-x"]
    assert images.argv("nginx", [], []) == ["my-nginx"]


def test_a_row_may_bring_programs_for_commands_of_the_containers_own(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("- {image: 'rayproject/ray*', path: [/venvs/ray/bin, /opt/bin]}\n")
    images = Images.load(str(file))
    assert images.path("rayproject/ray:2.40") == ["/venvs/ray/bin", "/opt/bin"]
    assert images.path("busybox") == [] and Images().path("busybox") == []
    assert images.argv("rayproject/ray:2.40", ["ray", "start"], []) == ["ray", "start"]
    with pytest.raises(ImageError, match="give the container a command"):
        images.argv("rayproject/ray:2.40", [], [])


@pytest.mark.parametrize("content", ["- image: x\n  comand: [a]\n", "{", "- 3\n"])
def test_a_wrong_table_says_what_a_row_looks_like(tmp_path: Path, content: str) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(content)
    with pytest.raises(TableError, match="a row looks like"):
        Images.load(str(file))
