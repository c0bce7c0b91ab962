"""The same sentences in English and in three languages without spaces between words, line by line."""

ENGLISH = """\
Two dogs are running across the snow.
A woman in a red coat is waiting for the bus in the rain.
The children are playing football in front of the school.
An old man is reading a newspaper on a bench in the park.
Thank you very much.
My younger brother will start working at a bank next month.
We could not find the book that you recommended last week.
The train to Beijing leaves at half past eight in the morning.
Please close the window, because it is getting cold.
She has been learning to play the piano since she was five years old.
There are many restaurants near the station, and most of them are open at night.
I do not know where he put the keys.
The doctor said that he should drink more water and sleep longer.
A group of tourists is taking photographs of the old temple.
It rained so heavily yesterday that the river flooded the road.
How much does this umbrella cost?
The government announced a new plan to reduce air pollution in large cities.
Three cats are sleeping on the sofa.
If you have any questions, please send us an email.
He bought fresh fish and vegetables at the market this morning.
The museum is closed on Mondays.
Scientists have discovered a new kind of frog in the forest.
My grandmother often told us stories about her childhood in the village.
The young people are dancing and singing on the beach.
""".splitlines()

CHINESE = """\
两只狗正在雪地里奔跑。
一个穿红色外套的女人在雨中等公共汽车。
孩子们正在学校前面踢足球。
一位老人坐在公园的长椅上看报纸。
非常感谢。
我弟弟下个月将开始在一家银行工作。
我们没能找到你上周推荐的那本书。
去北京的火车早上八点半出发。
请把窗户关上，因为天气越来越冷了。
她从五岁起就一直在学弹钢琴。
车站附近有很多餐馆，其中大多数晚上也营业。
我不知道他把钥匙放在哪里了。
医生说他应该多喝水，多睡觉。
一群游客正在给那座古老的寺庙拍照。
昨天雨下得太大，河水淹没了道路。
这把雨伞多少钱？
政府宣布了一项减少大城市空气污染的新计划。
三只猫在沙发上睡觉。
如果您有任何问题，请给我们发电子邮件。
他今天早上在市场上买了新鲜的鱼和蔬菜。
博物馆星期一不开放。
科学家们在森林里发现了一种新的青蛙。
我的奶奶经常给我们讲她在村子里的童年故事。
年轻人正在海滩上跳舞唱歌。
""".splitlines()

JAPANESE = """\
二匹の犬が雪の中を走っています。
赤いコートを着た女性が雨の中でバスを待っています。
子供たちは学校の前でサッカーをしています。
お年寄りの男性が公園のベンチで新聞を読んでいます。
どうもありがとうございます。
私の弟は来月から銀行で働き始めます。
先週あなたが薦めてくれた本は見つかりませんでした。
北京行きの電車は午前八時半に出発します。
寒くなってきたので、窓を閉めてください。
彼女は五歳の時からピアノを習っています。
駅の近くにはレストランがたくさんあり、そのほとんどは夜も開いています。
彼がどこに鍵を置いたのか分かりません。
医者は彼にもっと水を飲んで長く眠るように言いました。
観光客の一団が古いお寺の写真を撮っています。
昨日は雨がとても激しく降ったので、川の水が道路にあふれました。
この傘はいくらですか。
政府は大都市の大気汚染を減らすための新しい計画を発表しました。
三匹の猫がソファーの上で眠っています。
ご質問がありましたら、メールでお送りください。
彼は今朝、市場で新鮮な魚と野菜を買いました。
博物館は月曜日が休みです。
科学者たちは森で新しい種類の蛙を発見しました。
祖母はよく村で過ごした子供時代の話をしてくれました。
若者たちは浜辺で踊ったり歌ったりしています。
""".splitlines()

THAI = """\
สุนัขสองตัวกำลังวิ่งข้ามหิมะ
ผู้หญิงในเสื้อโค้ทสีแดงกำลังรอรถเมล์อยู่กลางสายฝน
เด็กๆ กำลังเล่นฟุตบอลอยู่หน้าโรงเรียน
ชายชราคนหนึ่งกำลังอ่านหนังสือพิมพ์บนม้านั่งในสวนสาธารณะ
ขอบคุณมาก
น้องชายของฉันจะเริ่มทำงานที่ธนาคารเดือนหน้า
เราหาหนังสือที่คุณแนะนำเมื่อสัปดาห์ที่แล้วไม่เจอ
รถไฟไปปักกิ่งออกเวลาแปดโมงครึ่งตอนเช้า
กรุณาปิดหน้าต่าง เพราะอากาศเริ่มหนาวแล้ว
เธอเรียนเปียโนมาตั้งแต่อายุห้าขวบ
มีร้านอาหารมากมายใกล้สถานี และส่วนใหญ่เปิดตอนกลางคืน
ฉันไม่รู้ว่าเขาวางกุญแจไว้ที่ไหน
หมอบอกว่าเขาควรดื่มน้ำให้มากขึ้นและนอนให้นานขึ้น
กลุ่มนักท่องเที่ยวกำลังถ่ายรูปวัดเก่า
เมื่อวานฝนตกหนักมากจนแม่น้ำท่วมถนน
ร่มคันนี้ราคาเท่าไหร่
รัฐบาลประกาศแผนใหม่เพื่อลดมลพิษทางอากาศในเมืองใหญ่
แมวสามตัวกำลังนอนหลับอยู่บนโซฟา
หากคุณมีคำถาม กรุณาส่งอีเมลถึงเรา
เขาซื้อปลาสดและผักที่ตลาดเมื่อเช้านี้
พิพิธภัณฑ์ปิดทุกวันจันทร์
นักวิทยาศาสตร์ค้นพบกบชนิดใหม่ในป่า
คุณยายของฉันมักจะเล่าเรื่องวัยเด็กในหมู่บ้านให้เราฟัง
คนหนุ่มสาวกำลังเต้นรำและร้องเพลงบนชายหาด
""".splitlines()

TEXTS = {"zh": CHINESE, "ja": JAPANESE, "th": THAI}
