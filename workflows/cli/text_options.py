"""The options of the translation experiments."""

from dataclasses import dataclass

from workflows.cli.options import Common, DataOption, FilesOption, ProfileOption
from workflows.profiles.loading import load_profile
from workflows.profiles.profile import Profile


@dataclass(frozen=True)
class TextOptions:
    """The options for a text and its settings (`workflows.cli.options.with_options`)."""

    profile: ProfileOption = None
    data: DataOption = None
    files: FilesOption = None

    def load(self, common: Common) -> Profile:
        """Loads the profile with all changes. Raises UserError like `load_profile`."""
        named, files, changes = self.profile, self.files or (), common.overrides or ()
        return load_profile(named, data=self.data, files=files, config=common.config, overrides=changes)
