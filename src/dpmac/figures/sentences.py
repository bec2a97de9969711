"""The paper's sentences in its own words, each with the comparisons that it makes.

A part compares two cells on one task: `first RULE second`. What stands in brackets is not the paper's. "Fails", said of
I2C without a comparison, is read as worse than MADDPG; "remarkable", "meaningful" and "good performance" as not worse
than MADDPG; "competitive" as not worse than the baselines; "at least as effective" as not worse than free messages; to
incorporate the noise into the optimisation as to train with it; a "slight" decline or drop as one that is at most
little; "the best" as above all others, by however little; a contrast between two methods as one between their losses. A
noise-robust representation is one that also still helps where messages matter, on CCN. What noise does to the
information in messages is measured on DPMAC's, for those of TarMAC and I2C are saved as they were before their noise;
whether any are meaningless is not asked by itself. Where a sentence says "overall" or "in most cases", or names no task
and no method but DPMAC, most of its comparisons decide; a guarantee needs all of them. Sentences that compare nothing
are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Rule = Literal[
    "above", "better", "much better", "comparable", "not worse", "little worse", "differs", "little learned", "kept"
]
Measure = Literal["return", "curve", "loss", "information", "learned_deviation", "epsilon"]

ALL = ("cn", "ccn", "pp")


class Series(NamedTuple):
    """One side of a comparison."""

    method: str
    budget: str = "free"
    at: str = ""
    """Noise that the finished teams are scored at, if not their own."""
    variant: str = ""
    """How these runs differ from the plain ones (`experiments.VARIANTS`)."""


class Part(NamedTuple):
    """One comparison on one task."""

    task: str
    first: Series
    rule: Rule
    second: Series
    measure: Measure = "return"
    """return: the final one. curve: the mean over all of training. loss: what noise takes from the return.
    information: what messages tell of their senders' observations. learned_deviation: the sender's, at the end.
    epsilon: what is claimed beside what is true."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper."""

    name: str
    section: str
    sentence: str
    parts: tuple[Part, ...]
    most: bool = False
    """Whether the sentence speaks of most cases rather than of all."""


MADDPG = Series("silent")


def dpmac(budget: str = "free", at: str = "", variant: str = "") -> Series:
    return Series("dpmac", budget, at, variant)


def baselines(budget: str = "free") -> tuple[Series, Series]:
    return Series("tarmac", budget), Series("i2c", budget)


def every(
    tasks: Iterable[str], pairs: Iterable[tuple[Series, Series]], rule: Rule, measure: Measure = "return"
) -> tuple[Part, ...]:
    """The same comparisons on several tasks."""
    pairs = tuple(pairs)
    return tuple(Part(task, first, rule, second, measure) for task in tasks for first, second in pairs)


def freely(series: Series) -> Series:
    """The same method with free messages."""
    return Series(series.method)


def at_step(*budgets: str) -> tuple[Series, ...]:
    """TarMAC and I2C at these budgets."""
    return tuple(series for budget in budgets for series in baselines(budget))


PRIVATE_BUDGETS = ("step-0.1", "step-1", "episode-0.1", "episode-1")
STEP_BUDGETS = ("step-1", "step-0.1", "step-0.01")
DPMAC_BUDGETS = (*STEP_BUDGETS, "episode-1", "episode-0.1", "episode-0.01")


def private_advantage(rule: Rule) -> tuple[Part, ...]:
    """DPMAC beside each baseline at the same budget, on every task."""
    pairs = [(dpmac(budget), other) for budget in PRIVATE_BUDGETS for other in (*baselines(budget), MADDPG)]
    return every(ALL, pairs, rule)


def free_competition() -> tuple[Part, ...]:
    """DPMAC beside each baseline with free messages, on every task."""
    return every(ALL, [(dpmac(), other) for other in (*baselines(), MADDPG)], "not worse")


def noise_robust() -> tuple[Part, ...]:
    """Teams trained with a noise beside teams trained without, at that noise, on every task."""
    return every(ALL, [(dpmac(budget), dpmac("free", at=budget)) for budget in ("step-1", "step-0.1")], "better")


def true_promises() -> tuple[Part, ...]:
    """Whether DPMAC keeps its ε, at every budget and on every task."""
    return every(ALL, [(dpmac(budget), dpmac(budget)) for budget in DPMAC_BUDGETS], "kept", "epsilon")


FRONT = "Abstract, introduction, contributions and conclusion"
METHOD = "Stochastic Gaussian messages"
MAIN = "Experiment results"
BUDGETS = "DPMAC under different privacy budgets"
FREE = "Appendix: results without privacy"
PRIVATE = "Appendix: results with privacy"
MORE = "Appendix: DPMAC under different privacy budgets"
EPISODE = "Appendix: episode-level privacy"
EPISODE_BUDGETS = "Appendix: DPMAC under different episode-level budgets"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "rigorous",
        FRONT,
        "[DPMAC] protects the sensitive information of individual agents by equipping each agent with a local message "
        "sender with rigorous (ε, δ)-differential privacy (DP) guarantee.",
        true_promises(),
    ),
    Claim(
        "alleviates",
        FRONT,
        "we adopt a stochastic message sender for each agent respectively and incorporate the DP requirement into the "
        "sender, which automatically adjusts the learned message distribution to alleviate the instability caused "
        "by DP "
        "noise.",
        every(
            ["ccn"],
            [(dpmac(budget), dpmac(budget, variant="deterministic")) for budget in DPMAC_BUDGETS],
            "better",
        ),
        most=True,
    ),
    Claim(
        "clear-advantage",
        FRONT,
        "Extensive experiments demonstrate a clear advantage of DPMAC over baseline methods in privacy-preserving "
        "scenarios.",
        private_advantage("better"),
        most=True,
    ),
    Claim(
        "adjusts-itself",
        FRONT,
        "we incorporate the noise variance into the representation of the message distribution, so that the agents "
        "could learn to adjust the message distribution automatically according to varying noise scales.",
        every(ALL, [(dpmac(budget), dpmac()) for budget in DPMAC_BUDGETS], "differs", "learned_deviation"),
        most=True,
    ),
    Claim(
        "significantly-outperforms",
        FRONT,
        "Specifically, in privacy-preserving scenarios, DPMAC significantly outperforms baselines.",
        private_advantage("better"),
        most=True,
    ),
    Claim(
        "competitive",
        FRONT,
        "Moreover, even without any privacy constraints, DPMAC could also gain competitive performance against "
        "baselines.",
        free_competition(),
        most=True,
    ),
    Claim(
        "provable",
        FRONT,
        "we make the first attempt to develop a framework for private communication in MARL, named DPMAC, with "
        "provable (ε, δ)-DP guarantee.",
        true_promises(),
    ),
    Claim(
        "contribution-private",
        FRONT,
        "Extensive experiments show that DPMAC clearly outperforms baselines in privacy-preserving scenarios",
        private_advantage("better"),
        most=True,
    ),
    Claim(
        "contribution-free",
        FRONT,
        "and gains competitive performance in non-private scenarios.",
        free_competition(),
        most=True,
    ),
    Claim(
        "conclusion",
        FRONT,
        "Extensive experiments conducted on 3 MPE tasks with varying privacy constraints demonstrate the effectiveness "
        "of DPMAC against the baseline methods.",
        private_advantage("better"),
        most=True,
    ),
    Claim(
        "injected-noise",
        METHOD,
        "as we shall see in our experiment section, directly injecting the privacy noise into existing MARL with "
        "communication algorithms may lead to serious performance degradation.",
        every(ALL, [(freely(one), one) for one in at_step("step-0.1", "step-1")], "much better"),
        most=True,
    ),
    Claim(
        "information",
        METHOD,
        "In fact, the injected noise might jeopardize the useful information incorporated in the messages, or even "
        "leads to meaningless messages.",
        every(ALL, [(dpmac(), dpmac(budget)) for budget in DPMAC_BUDGETS], "better", "information"),
        most=True,
    ),
    Claim(
        "as-effective",
        METHOD,
        "the sender could learn to send private message m_i = p_i + u_i that is at least as effective as the "
        "non-private message m'_i.",
        every(ALL, [(dpmac(budget), dpmac()) for budget in STEP_BUDGETS], "not worse"),
        most=True,
    ),
    Claim(
        "well-alleviated",
        METHOD,
        "In this manner, the performance degradation is expected to be well alleviated.",
        noise_robust(),
        most=True,
    ),
    Claim(
        "free-ccn",
        MAIN,
        "DPMAC outperforms baselines on CCN task",
        every(["ccn"], [(dpmac(), other) for other in (*baselines(), MADDPG)], "better"),
    ),
    Claim(
        "free-cn-pp",
        MAIN,
        "and has comparable performance on CN and PP tasks.",
        every(["cn", "pp"], [(dpmac(), other) for other in (*baselines(), MADDPG)], "comparable"),
    ),
    Claim(
        "disturbed",
        MAIN,
        "Overall, the privacy constraints impose obvious disturbances to the performance of all algorithms.",
        every(
            ALL,
            [(freely(one), one) for one in (*at_step("step-0.1", "step-1"), dpmac("step-0.1"), dpmac("step-1"))],
            "better",
        ),
        most=True,
    ),
    Claim(
        "baselines-degenerate",
        MAIN,
        "Specifically, the performance of TarMAC and I2C degenerates significantly",
        every(ALL, [(freely(one), one) for one in at_step("step-0.1", "step-1")], "much better"),
    ),
    Claim(
        "baselines-inferior",
        MAIN,
        "and becomes even inferior to the performance of MADDPG.",
        every(ALL, [(MADDPG, one) for one in at_step("step-0.1", "step-1")], "better"),
    ),
    Claim(
        "dpmac-slight",
        MAIN,
        "However, in most cases, the performance of DPMAC with privacy constraints only suffers a slight decline",
        every(ALL, [(dpmac(budget), dpmac()) for budget in ("step-0.1", "step-1")], "little worse"),
        most=True,
    ),
    Claim(
        "dpmac-not-inferior",
        MAIN,
        "and is still superior or comparable to the performance of MADDPG.",
        every(ALL, [(dpmac(budget), MADDPG) for budget in ("step-0.1", "step-1")], "not worse"),
        most=True,
    ),
    Claim(
        "remarkable",
        BUDGETS,
        "When ε = 0.01, DPMAC still gains remarkable performance on CN and CCN tasks,",
        every(["cn", "ccn"], [(dpmac("step-0.01"), MADDPG)], "not worse"),
    ),
    Claim(
        "others-serious",
        BUDGETS,
        "while other baselines' performance suffers serious degeneration, as we have analyzed above.",
        every(["cn", "ccn"], [(freely(one), one) for one in at_step("step-0.01")], "much better"),
    ),
    Claim(
        "pp-0.01",
        BUDGETS,
        "Besides, on the PP task under the privacy constraint with ε = 0.01, DPMAC also suffers clear performance "
        "degradation.",
        every(["pp"], [(dpmac(), dpmac("step-0.01"))], "better"),
    ),
    Claim(
        "variance-adjusted",
        BUDGETS,
        "Overall, the experiments of DPMAC under different privacy budgets also show that DPMAC could automatically "
        "adjust the variance of the stochastic message sender",
        every(
            ALL,
            [(dpmac(budget), dpmac()) for budget in STEP_BUDGETS],
            "differs",
            "learned_deviation",
        ),
        most=True,
    ),
    Claim(
        "noise-robust",
        BUDGETS,
        "so that it learns a noise-robust message representation.",
        (*noise_robust(), *every(["ccn"], [(dpmac(budget), MADDPG) for budget in ("step-1", "step-0.1")], "better")),
        most=True,
    ),
    Claim(
        "very-close",
        BUDGETS,
        "As shown in Figure [step-dpmac], DPMAC gains very close performance when ε = 0.1 and ε = 1.0, though the "
        "privacy "
        "requirements of ε = 0.1 and ε = 1.0 differ by one order of magnitude.",
        every(ALL, [(dpmac("step-0.1"), dpmac("step-1"))], "comparable"),
        most=True,
    ),
    Claim(
        "baseline-gaps",
        BUDGETS,
        "However, one can see large performance gaps for the same baseline algorithms under different ε from Figure "
        "[step-0.1] and [step-1.0].",
        every(ALL, zip(baselines("step-1"), baselines("step-0.1"), strict=True), "much better"),
        most=True,
    ),
    Claim(
        "baselines-effective",
        FREE,
        "TarMAC and I2C, which are effective communication-based algorithm and can achieve superior performance than "
        "methods without communication such as MADDPG.",
        every(ALL, [(one, MADDPG) for one in baselines()], "better"),
    ),
    Claim(
        "baselines-over-maddpg",
        FREE,
        "As shown in Figure [nonprivate], TarMAC and I2C outperform MADDPG on cooperative navigation (CN) and "
        "predator-prey (PP) tasks",
        every(["cn", "pp"], [(one, MADDPG) for one in baselines()], "better"),
    ),
    Claim(
        "baselines-like-maddpg",
        FREE,
        "and achieve similar performance as MADDPG on cooperative communication and navigation (CCN) task.",
        every(["ccn"], [(one, MADDPG) for one in baselines()], "comparable"),
    ),
    Claim(
        "large-margin-ccn",
        FREE,
        "However, DPMAC without privacy constraints outperforms TarMAC and I2C by a large margin on CCN task",
        every(["ccn"], [(dpmac(), one) for one in baselines()], "much better"),
    ),
    Claim(
        "like-baselines",
        FREE,
        "and is comparable with TarMAC and I2C on CN and PP tasks.",
        every(["cn", "pp"], [(dpmac(), one) for one in baselines()], "comparable"),
    ),
    Claim(
        "effective-free",
        FREE,
        "These results demonstrate the effectiveness of the message sender and receiver of DPMAC, which also has "
        "competitive performance under no privacy constraints.",
        free_competition(),
        most=True,
    ),
    Claim(
        "serious-0.1",
        PRIVATE,
        "one can observe a serious performance degradation of TarMAC and I2C with a privacy budget of ε = 0.10,",
        every(ALL, [(freely(one), one) for one in baselines("step-0.1")], "much better"),
    ),
    Claim(
        "inferior-0.1",
        PRIVATE,
        "which makes these two methods even worse than non-communicative MADDPG.",
        every(ALL, [(MADDPG, one) for one in baselines("step-0.1")], "better"),
    ),
    Claim(
        "dpmac-0.1",
        PRIVATE,
        "In contrast, our DPMAC could still significantly outperform MADDPG on CN and PP tasks [ε = 0.10]",
        every(["cn", "pp"], [(dpmac("step-0.1"), MADDPG)], "better"),
    ),
    Claim(
        "dpmac-0.1-ccn",
        PRIVATE,
        "and is comparable with MADDPG on CCN task. [ε = 0.10]",
        every(["ccn"], [(dpmac("step-0.1"), MADDPG)], "comparable"),
    ),
    Claim(
        "dpmac-1",
        PRIVATE,
        "our DPMAC still clearly outperforms all other methods on CN and PP tasks [ε = 1.00]",
        every(["cn", "pp"], [(dpmac("step-1"), one) for one in (*baselines("step-1"), MADDPG)], "better"),
    ),
    Claim(
        "dpmac-1-ccn",
        PRIVATE,
        "and is comparable with MADDPG on CCN task. [ε = 1.00]",
        every(["ccn"], [(dpmac("step-1"), MADDPG)], "comparable"),
    ),
    Claim(
        "tarmac-1",
        PRIVATE,
        "In sharp contrast to DPMAC, TarMAC still has clear degeneration on all tasks [ε = 1.00]",
        (
            *every(ALL, [(Series("tarmac"), Series("tarmac", "step-1"))], "better"),
            *every(ALL, [(Series("tarmac", "step-1"), dpmac("step-1"))], "better", "loss"),
        ),
    ),
    Claim(
        "tarmac-1-pp",
        PRIVATE,
        "and is even worse than MADDPG on PP task,",
        every(["pp"], [(MADDPG, Series("tarmac", "step-1"))], "better"),
    ),
    Claim(
        "i2c-1",
        PRIVATE,
        "and I2C fails across all three tasks under such privacy constraints.",
        every(ALL, [(MADDPG, Series("i2c", "step-1"))], "better"),
    ),
    Claim(
        "principle",
        PRIVATE,
        "These results demonstrate that the design principle of DPMAC that adjusting the learned message distribution "
        "via incorporating the distribution of privacy noise into the optimization process of the message sender and "
        "receiver can well alleviate the negative impacts of the privacy noises.",
        noise_robust(),
        most=True,
    ),
    Claim(
        "cn-close",
        MORE,
        "On CN task, the performance of DPMAC with different privacy budgets are very close except ε = 0.01, "
        "which is a very stringent privacy level.",
        (
            *every(["cn"], [(dpmac(budget), dpmac()) for budget in ("step-1", "step-0.1")], "comparable"),
            *every(["cn"], [(dpmac("step-0.1"), dpmac("step-1"))], "comparable"),
            *every(
                ["cn"], [(dpmac(budget), dpmac("step-0.01")) for budget in ("free", "step-1", "step-0.1")], "better"
            ),
        ),
    ),
    Claim(
        "ccn-best",
        MORE,
        "On CCN task, DPMAC without privacy constraint achieves the best performance,",
        every(["ccn"], [(dpmac(), dpmac(budget)) for budget in STEP_BUDGETS], "above"),
    ),
    Claim(
        "ccn-meaningful",
        MORE,
        "and DPMAC with different ε could also reach meaningful performance. [CCN]",
        every(["ccn"], [(dpmac(budget), MADDPG) for budget in STEP_BUDGETS], "not worse"),
    ),
    Claim(
        "pp-private-better",
        MORE,
        "On PP task, DPMAC with ε = 0.10 and ε = 1.00 even outperform non-private DPMAC.",
        every(["pp"], [(dpmac(budget), dpmac()) for budget in ("step-0.1", "step-1")], "better"),
    ),
    Claim(
        "private-encourages",
        MORE,
        "the private messages can even encourage better team cooperation to gain higher team rewards than the "
        "non-private messages. [PP]",
        every(["pp"], [(dpmac(budget), dpmac()) for budget in ("step-0.1", "step-1")], "better"),
    ),
    Claim(
        "only-pp",
        MORE,
        "Overall, one can see that the performance of DPMAC drops clearly only when ε = 0.01 on PP task.",
        (
            *every(["pp"], [(dpmac(), dpmac("step-0.01"))], "better"),
            *every(["pp"], [(dpmac(budget), dpmac()) for budget in ("step-0.1", "step-1")], "not worse"),
            *every(
                ["cn", "ccn"],
                [(dpmac(budget), dpmac()) for budget in ("step-0.01", "step-0.1", "step-1")],
                "not worse",
            ),
        ),
        most=True,
    ),
    Claim(
        "stabilizes",
        MORE,
        "The above results also clearly demonstrate that DPMAC can learn to adjust the message distribution to "
        "alleviate the potential negative impacts of privacy noises, which ensures meaningful performance even under "
        "limited privacy budgets and stabilizes performance.",
        every(ALL, [(dpmac(budget), MADDPG) for budget in STEP_BUDGETS], "not worse"),
        most=True,
    ),
    Claim(
        "episode-further",
        EPISODE,
        "under episode-level privacy constraint of ε = 0.10, both the performance of TarMAC and I2C has a further "
        "degeneration across all the tasks.",
        every(ALL, zip(baselines("step-0.1"), baselines("episode-0.1"), strict=True), "better"),
    ),
    Claim(
        "episode-0.1-cn",
        EPISODE,
        "However, DPMAC could still clearly outperform MADDPG on CN task [episode, ε = 0.10]",
        every(["cn"], [(dpmac("episode-0.1"), MADDPG)], "better"),
    ),
    Claim(
        "episode-0.1-ccn",
        EPISODE,
        "and is comparable with MADDPG on CCN task. [episode, ε = 0.10]",
        every(["ccn"], [(dpmac("episode-0.1"), MADDPG)], "comparable"),
    ),
    Claim(
        "episode-0.1-pp",
        EPISODE,
        "On PP task, DPMAC is outperformed by MADDPG",
        every(["pp"], [(MADDPG, dpmac("episode-0.1"))], "better"),
    ),
    Claim(
        "episode-0.1-pp-baselines",
        EPISODE,
        "but still exceeds TarMAC and I2C by a large margin.",
        every(["pp"], [(dpmac("episode-0.1"), one) for one in baselines("episode-0.1")], "much better"),
    ),
    Claim(
        "episode-i2c",
        EPISODE,
        "I2C still fails across all tasks [episode, ε = 1.00]",
        every(ALL, [(MADDPG, Series("i2c", "episode-1"))], "better"),
    ),
    Claim(
        "episode-tarmac-drop",
        EPISODE,
        "and TarMAC also has a clear performance drop.",
        every(ALL, [(Series("tarmac", "step-1"), Series("tarmac", "episode-1"))], "better"),
    ),
    Claim(
        "tarmac-had",
        EPISODE,
        "Specifically, TarMAC has exceeded MADDPG on CN task and was comparable with MADDPG on CCN task [step, ε = "
        "1.00],",
        (
            *every(["cn"], [(Series("tarmac", "step-1"), MADDPG)], "better"),
            *every(["ccn"], [(Series("tarmac", "step-1"), MADDPG)], "comparable"),
        ),
    ),
    Claim(
        "tarmac-now",
        EPISODE,
        "but now TarMAC turns out be outperformed by MADDPG on these tasks [episode, ε = 1.00].",
        every(["cn", "ccn"], [(MADDPG, Series("tarmac", "episode-1"))], "better"),
    ),
    Claim(
        "tarmac-gap",
        EPISODE,
        "Besides, the performance gap between MADDPG and TarMAC now also becomes larger under the episode-level "
        "privacy "
        "constraint on the PP task.",
        every(["pp"], [(Series("tarmac", "step-1"), Series("tarmac", "episode-1"))], "better"),
    ),
    Claim(
        "episode-1",
        EPISODE,
        "However, even though under episode-level privacy constraint of ε = 1.00, DPMAC still outperforms MADDPG on "
        "CN and PP "
        "tasks",
        every(["cn", "pp"], [(dpmac("episode-1"), MADDPG)], "better"),
    ),
    Claim(
        "episode-1-ccn",
        EPISODE,
        "and is comparable with MADDPG on the CCN task. [episode, ε = 1.00]",
        every(["ccn"], [(dpmac("episode-1"), MADDPG)], "comparable"),
    ),
    Claim(
        "episode-harder",
        EPISODE,
        "The above results indeed demonstrate that it is harder to learn under the episode-level privacy constraints "
        "since larger privacy noises are injected into the messages",
        every(
            ALL,
            [
                (Series(method, f"step-{epsilon}"), Series(method, f"episode-{epsilon}"))
                for method in ("dpmac", "tarmac", "i2c")
                for epsilon in ("0.1", "1")
            ],
            "better",
        ),
        most=True,
    ),
    Claim(
        "episode-good",
        EPISODE,
        "but also validate the effectiveness of DPMAC, which still has good performance under episode-level privacy "
        "constraints.",
        every(ALL, [(dpmac(budget), MADDPG) for budget in ("episode-1", "episode-0.1")], "not worse"),
        most=True,
    ),
    Claim(
        "episode-1-same",
        EPISODE_BUDGETS,
        "the performance of DPMAC under the episode-level privacy constraint of ε = 1.00 nearly remains the same as "
        "before.",
        every(ALL, [(dpmac("episode-1"), dpmac("step-1"))], "comparable"),
        most=True,
    ),
    Claim(
        "episode-0.1-similar",
        EPISODE_BUDGETS,
        "Under episode-level privacy constraint of ε = 0.10, DPMAC still has a similar performance on CN and CCN tasks",
        every(["cn", "ccn"], [(dpmac("episode-0.1"), dpmac("step-0.1"))], "comparable"),
    ),
    Claim(
        "episode-0.1-slower",
        EPISODE_BUDGETS,
        "though converges slightly slower.",
        every(["cn", "ccn"], [(dpmac("step-0.1"), dpmac("episode-0.1"))], "better", "curve"),
    ),
    Claim(
        "episode-0.1-pp-slight",
        EPISODE_BUDGETS,
        "But on the PP task, DPMAC also has a slight performance drop.",
        every(["pp"], [(dpmac("episode-0.1"), dpmac("step-0.1"))], "little worse"),
    ),
    Claim(
        "episode-0.01-similar",
        EPISODE_BUDGETS,
        "Under episode-level privacy constraint of ε = 0.01, though DPMAC still has a similar performance on CN and "
        "CCN tasks,",
        every(["cn", "ccn"], [(dpmac("episode-0.01"), dpmac("step-0.01"))], "comparable"),
    ),
    Claim(
        "episode-0.01-pp",
        EPISODE_BUDGETS,
        "it nearly fails to learn on the PP task.",
        every(["pp"], [(dpmac("episode-0.01"), MADDPG)], "little learned"),
    ),
    Claim(
        "episode-adjusted",
        EPISODE_BUDGETS,
        "Overall, the above results show that DPMAC can still learn to adjust the message distributions to "
        "alleviate the "
        "negative impacts of privacy noises even under episode-level privacy constraints.",
        every(
            ALL,
            [(dpmac(budget), dpmac()) for budget in ("episode-1", "episode-0.1", "episode-0.01")],
            "differs",
            "learned_deviation",
        ),
        most=True,
    ),
)
