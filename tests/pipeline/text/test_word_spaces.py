"""pipeline.text.word_spaces: scripts with and without spaces between words, and text already split into words."""

import pytest

from pipeline.text.word_spaces import has_word_spaces
from tests.support.unspaced_text import CHINESE, ENGLISH, JAPANESE, THAI


@pytest.mark.parametrize(
    "lines",
    [
        CHINESE,
        JAPANESE,
        THAI,
        ["ທ່ານສະບາຍດີບໍ່? ຂ້ອຍຢາກໄປຕະຫຼາດ"],
        ["ខ្ញុំចូលចិត្តញ៉ាំបាយ និងត្រីជាមួយគ្រួសារ"],
        ["ကျွန်တော် မနက်ဖြန် ရန်ကုန်မြို့ကိုသွားမယ်။"],
        ["བོད་ཡིག་ནི་ཧ་ཅང་ཡག་པོ་རེད།"],
        ["我昨天用 Python 写了一个很有用的小程序。"],
        ["カタカナ"],
    ],
    ids=["zh", "ja", "th", "lo", "km", "my", "bo", "zh with Latin names", "katakana"],
)
def test_these_have_none(lines: list[str]) -> None:
    """Usual text has no word spaces, even with spaces between clauses or words of another script."""
    assert not has_word_spaces(lines)


@pytest.mark.parametrize(
    "lines",
    [
        ENGLISH,
        ["Donaudampfschifffahrtsgesellschaftskapitän"],
        ["저는 내일 아침에 학교에 갑니다."],
        ["मैं कल बाज़ार जाऊँगा।"],
        ["سأذهب غدا إلى السوق."],
        ["Tôi sẽ đi chợ vào ngày mai."],
        ["Я завтра пойду на рынок."],
        ["两 只 狗 正在 雪地 里 奔跑 。"],
        ["เธอ เรียน เปียโน มา ตั้งแต่ อายุ ห้า ขวบ"],
        ["Beijing (北京) is the capital of China."],
        ["(S (NP XX )NP (VP XX )VP )S"],
        ["", "1 + 1 = 2", "\u2028"],
        [],
    ],
    ids=[
        "en",
        "one word",
        "ko",
        "hi",
        "ar",
        "vi",
        "ru",
        "zh split",
        "th split",
        "en with Han",
        "tree",
        "none",
        "empty",
    ],
)
def test_these_have_spaces(lines: list[str]) -> None:
    """Text split into words by a program has spaces. Text without letters counts as having them."""
    assert has_word_spaces(lines)
