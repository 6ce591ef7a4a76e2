"""Reads manifests by the models that Kubeflow generates from its own interface, and prints each field
that they do not know or take for something else: `models.py FILE...`."""
import sys

import kubeflow_trainer_api.models as models
import yaml

MODELS = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}


def differences(path, written, read):
    """The models leave out what they do not know."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            yield from differences(f"{path}.{key}", value, read.get(key))
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for place, value in enumerate(written):
            yield from differences(f"{path}[{place}]", value, read[place])
    elif written != read:
        yield f"{path}: {written!r} is read as {read!r}"


for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        for manifest in yaml.safe_load_all(file):
            kind = manifest["kind"]
            print(kind)
            for difference in differences(kind, manifest, MODELS[kind].from_dict(manifest).to_dict()):
                print(f"{name}: {difference}")
