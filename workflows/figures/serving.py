"""`--serve`: makes the page with a form, and serves it until ctrl-C."""

from workflows.console.command import console
from workflows.figures.drawing import AttentionFigures
from workflows.figures.server import FigureServer
from workflows.figures.steps import FigureRequest


def serve(wanted: FigureRequest, figures: AttentionFigures, port: int) -> None:
    """Serves the figures of a model, and of any sentence typed into the page. Raises UserError if the port is taken."""
    import torch

    from pipeline.attention.heads import Heads
    from pipeline.attention.relations import Relations
    from pipeline.attention.translated import AttentionTranslator
    from workflows.figures.page import Figure, Start, described, render

    device = "cuda" if torch.cuda.is_available() else "cpu"
    translator = AttentionTranslator(wanted.model.checkpoint.folder, wanted.settings.decoding, device)
    folder, drawn = figures.folder, figures.load()
    page = render(
        drawn.model,
        [translator.translate(sentence) for sentence in wanted.settings.sentences],
        wanted.settings.decoding,
        figures=[Figure(one.number, folder / f"figure{one.number}.svg", one.caption) for one in drawn.figures],
        heads=Heads(folder).load() if (folder / "heads.json").exists() else None,
        relations=Relations(folder).load().relations if (folder / "relations.json").exists() else (),
        start=Start("encoder", drawn.figures[0].layer - 1, tuple(head - 1 for head in drawn.figures[0].heads)),
        served=True,
    )
    with FigureServer(page, lambda sentence: described(translator.translate(sentence)), port) as server:
        console.print(f"page: {server.address}  (ctrl-C ends it)", highlight=False, soft_wrap=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            console.print("stopped serving")
